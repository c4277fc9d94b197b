"""PyTensor, Aesara or Theano, whichever is installed, set up to start quickly.

    from theano_backend import T, theano

The functions of these examples are small, so they run on NumPy as they are. Compiling them would
take every process of a job many seconds, and longer than the training. To have them compiled
nevertheless, set PYTENSOR_FLAGS, AESARA_FLAGS or THEANO_FLAGS: your settings win over these.
"""

import builtins
import importlib
import importlib.util
import logging
import os
import warnings
from types import ModuleType

import numpy as np

# No compiler at all: then the processes of a job also share no folder of compiled code.
QUICK = "floatX=float32,mode=FAST_COMPILE,linker=py,cxx="
# Import name, variable with the settings, what keeps it from searching for a BLAS to compile for.
BACKENDS = (
    ("pytensor", "PYTENSOR_FLAGS", "blas__ldflags="),
    ("aesara", "AESARA_FLAGS", "blas__ldflags="),
    ("theano", "THEANO_FLAGS", "blas.ldflags="),
)
# Names of Python's types that Theano looks for in NumPy, which has had none of them since 1.24.
NUMPY_ALIASES = ("bool", "int", "float", "complex", "object", "str")


def import_backend() -> ModuleType:
    """Import the first of PyTensor, Aesara and Theano that is installed.

    Raises
    ------
    ImportError
        None of them is, or the one that is cannot be imported.
    """
    for name, variable, no_blas in BACKENDS:
        if importlib.util.find_spec(name) is None:
            continue
        flags = [QUICK, no_blas, os.environ.get(variable, "")]
        os.environ[variable] = ",".join(flag for flag in flags if flag)
        # They warn that neither a compiler nor a BLAS was found.
        logging.getLogger(f"{name}.tensor.blas").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name == "theano":
                for alias in NUMPY_ALIASES:
                    if not hasattr(np, alias):
                        setattr(np, alias, getattr(builtins, alias))
            return importlib.import_module(name)
    raise ImportError("expected PyTensor, Aesara or Theano, found none; pip install pytensor")


theano = import_backend()
T = theano.tensor
