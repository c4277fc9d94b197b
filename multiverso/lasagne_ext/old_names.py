"""Restores names that Lasagne 0.1 and Theano 1.0.5 use and their dependencies have removed.

    from multiverso.lasagne_ext import old_names

    old_names.supply()
    import theano

`supply` itself imports Theano, so set THEANO_FLAGS before it. Lasagne and Theano have had no
release for years, and fail only because of missing names:

- NumPy 1.24 removed ``numpy.bool``, ``int``, ``float``, ``complex``, ``object`` and ``str``,
  aliases of Python's own types that Theano 1.0.5 uses.
- Theano 0.9 renamed the module ``theano.tensor.signal.downsample``, from which Lasagne 0.1 imports
  ``max_pool_2d``, to ``theano.tensor.signal.pool``, and the function to ``pool_2d``.
- setuptools has removed the module ``distutils.msvccompiler``, which NumPy imports when Theano
  searches for a BLAS, and NumPy 1.22 to 1.25 have no ``blas_opt_info`` for that search.
- Where mpi4py finds no MPI, it raises RuntimeError, and Theano expects ImportError.

Existing names stay unchanged. NumPy 2 does not work: Theano's C code needs NumPy 1.
"""

import builtins
import contextlib
import importlib
import importlib.util
import sys
import warnings
from types import ModuleType
from typing import Any, Final

import numpy as np

from multiverso._extras import LASAGNE, needs

__all__ = ["supply"]

_NUMPY_ALIASES: Final = ("bool", "int", "float", "complex", "object", "str")
_DOWNSAMPLE: Final = "theano.tensor.signal.downsample"
_MSVC: Final = "distutils.msvccompiler"
_MPI: Final = "mpi4py.MPI"


def supply() -> None:
    """Import Theano, and add the missing names to NumPy, Theano and distutils.

    Raises
    ------
    ImportError
        If Theano is not installed.

    Examples
    --------
    >>> from multiverso.lasagne_ext import old_names
    >>> old_names.supply()
    >>> import lasagne

    """
    try:
        importlib.import_module(_MSVC)
    except ImportError:
        sys.modules[_MSVC] = module = ModuleType(_MSVC, f"Supplied by {__name__}.")
        module.get_build_version = lambda: None  # type: ignore[attr-defined]
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # All of numpy.distutils is deprecated.
        config = importlib.import_module("numpy.distutils.__config__")
        if not hasattr(config, "blas_opt_info"):
            system = importlib.import_module("numpy.distutils.system_info")
            config.blas_opt_info = system.get_info("blas_opt")  # type: ignore[attr-defined]
    for name in _NUMPY_ALIASES:
        if not _numpy_has(name):
            setattr(np, name, getattr(builtins, name))
    try:
        importlib.import_module(_MPI)
    except ImportError:
        pass
    except RuntimeError:  # Without a libmpi; Theano expects an ImportError.
        sys.modules[_MPI] = None  # type: ignore[assignment]
    try:
        with needs("multiverso.lasagne_ext.old_names", **LASAGNE):
            signal = importlib.import_module("theano.tensor.signal")
    finally:
        if sys.modules.get(_MPI, np) is None:
            del sys.modules[_MPI]
    if _DOWNSAMPLE not in sys.modules and importlib.util.find_spec(_DOWNSAMPLE) is None:
        module = _make_downsample(importlib.import_module("theano.tensor.signal.pool"))
        sys.modules[_DOWNSAMPLE] = signal.downsample = module  # type: ignore[attr-defined]


def _numpy_has(name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy 1.20 to 1.23 warn about the names.
        return hasattr(np, name)


def _make_downsample(pool: ModuleType) -> ModuleType:
    def max_pool_2d(
        input: Any,  # Lasagne 0.1 passes these parameter names.
        ds: Any,
        ignore_border: Any = None,
        st: Any = None,
        padding: Any = (0, 0),
        mode: str = "max",
    ) -> Any:
        return pool.pool_2d(
            input, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode
        )

    module = ModuleType(_DOWNSAMPLE, f"Supplied by {__name__}.")
    module.max_pool_2d = max_pool_2d  # type: ignore[attr-defined]
    return module
