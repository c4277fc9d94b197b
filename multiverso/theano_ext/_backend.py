"""Finds out which of PyTensor, Aesara and Theano the program uses.

All three descend from Theano and have what Multiverso needs: `shared()` and
`compile.sharedvalue.SharedVariable` with its container.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from multiverso._extras import MissingExtraError, install_command

#: The distribution to install for each module, in order of preference: the maintained one first.
BACKENDS = {"pytensor": "pytensor", "aesara": "aesara", "theano": "Theano"}


def _imported() -> list[ModuleType]:
    """Return the backends that the process has imported, in the order of `BACKENDS`."""
    modules = (sys.modules.get(name) for name in BACKENDS)
    return [module for module in modules if module is not None and _is_framework(module)]


def _is_framework(module: ModuleType) -> bool:
    """Return whether `module` is the framework, neither half imported nor a folder of its name."""
    return hasattr(module, "shared")


def choose_backend() -> ModuleType:
    """Return the first of PyTensor, Aesara and Theano that is imported, else that can be."""
    imported = _imported()
    if imported:
        return imported[0]
    reasons = []
    kind: type[ImportError] = MissingExtraError
    for name, distribution in BACKENDS.items():
        try:
            module = importlib.import_module(name)
            if _is_framework(module):
                return module
            reasons.append(f"{module!r} is not {distribution}")
        except Exception as error:  # Old Theano with new NumPy raises AttributeError.
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                reasons.append(f"{distribution} is not installed")
            else:
                kind = ImportError  # A damaged installation is not a missing one.
                reasons.append(f"importing {name} failed with {type(error).__name__}: {error}")
    raise kind(
        "multiverso.theano_ext needs PyTensor, Aesara or Theano, and found none that works: "
        f"{install_command('theano')} ({'; '.join(reasons)})"
    )


def is_shared_variable(variable: Any) -> bool:
    """Return whether `variable` is a shared variable of any backend."""
    return any(
        isinstance(variable, module.compile.sharedvalue.SharedVariable) for module in _imported()
    )
