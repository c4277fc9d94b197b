"""What Lasagne 0.1 and Theano 1.0.5 look for and newer releases of others no longer have.

    from multiverso.lasagne_ext import old_names

    old_names.supply()
    import lasagne

Neither has had a release for years, and both stumble over names only. Two kinds are missing:

- ``numpy.bool``, ``int``, ``float``, ``complex``, ``object`` and ``str``, which Theano 1.0.5 uses,
  were other names of Python's own types, and left NumPy with release 1.24.
- The module ``theano.tensor.signal.downsample``, from which Lasagne 0.1 takes ``max_pool_2d``. It
  has been ``theano.tensor.signal.pool`` and ``pool_2d`` since Theano 0.9.

What is there is left alone, so that it does no harm to call this on any release. NumPy 2 has no
remedy: Theano's C code needs NumPy 1.
"""

import builtins
import importlib
import importlib.util
import sys
import warnings
from types import ModuleType
from typing import Any, Final

import numpy as np

__all__ = ["supply"]

_ALIASES: Final = ("bool", "int", "float", "complex", "object", "str")
_DOWNSAMPLE: Final = "theano.tensor.signal.downsample"


def supply() -> None:
    """Put the missing names where Theano and Lasagne look for them. Imports Theano.

    Raises
    ------
    ImportError
        Theano is not installed.

    """
    for name in _ALIASES:
        if not _has(name):
            setattr(np, name, getattr(builtins, name))
    signal = importlib.import_module("theano.tensor.signal")
    if _DOWNSAMPLE not in sys.modules and importlib.util.find_spec(_DOWNSAMPLE) is None:
        module = _downsample(importlib.import_module("theano.tensor.signal.pool"))
        sys.modules[_DOWNSAMPLE] = signal.downsample = module  # type: ignore[attr-defined]


def _has(name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy 1.20 to 1.23 warn of what 1.24 took away
        return hasattr(np, name)


def _downsample(pool: ModuleType) -> ModuleType:
    def max_pool_2d(
        input: Any,  # the names of old
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
