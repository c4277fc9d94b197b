"""The first of PyTensor, Aesara and Theano that is installed, configured to start quickly.

    from theano_backend import T, theano

The functions of these examples are small, so NumPy runs them without compilation, which would take
longer than the training. To compile them, set PYTENSOR_FLAGS, AESARA_FLAGS or THEANO_FLAGS: your
settings take precedence.
"""

import builtins
import importlib
import importlib.util
import logging
import os
import warnings
from types import ModuleType

import numpy as np

# Without a compiler, the processes of a job do not contend for a folder of compiled code.
QUICK = "floatX=float32,mode=FAST_COMPILE,linker=py,cxx="
# Import name, settings variable, and the setting that skips the search for a BLAS.
BACKENDS = (
    ("pytensor", "PYTENSOR_FLAGS", "blas__ldflags="),
    ("aesara", "AESARA_FLAGS", "blas__ldflags="),
    ("theano", "THEANO_FLAGS", "blas.ldflags="),
)
# Aliases of Python's types that Theano expects in NumPy, which removed them in 1.24.
NUMPY_ALIASES = ("bool", "int", "float", "complex", "object", "str")


def import_backend() -> ModuleType:
    """Import the first of PyTensor, Aesara and Theano that is installed.

    Raises
    ------
    ImportError
        If none is installed, or if its import fails.
    """
    for name, variable, no_blas in BACKENDS:
        if importlib.util.find_spec(name) is None:
            continue
        flags = [QUICK, no_blas, os.environ.get(variable, "")]
        os.environ[variable] = ",".join(flag for flag in flags if flag)
        # Hides the warnings about the missing compiler and BLAS.
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
