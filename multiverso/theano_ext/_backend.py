"""Which of PyTensor, Aesara and Theano the program uses.

The three descend from one another and agree on all that Multiverso needs: `shared()` and
`compile.sharedvalue.SharedVariable` with its container.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

# Import name, and what to install. The order decides where the program does not: the maintained
# one first.
BACKENDS = {"pytensor": "pytensor", "aesara": "aesara", "theano": "Theano"}


def _imported() -> list[ModuleType]:
    """Return the backends that the process has imported, in the order of `BACKENDS`."""
    modules = (sys.modules.get(name) for name in BACKENDS)
    return [module for module in modules if module is not None and _is_whole(module)]


def _is_whole(module: ModuleType) -> bool:
    """Tell whether it is the framework: not half imported, nor a mere folder of that name."""
    return hasattr(module, "shared")


def choose_backend() -> ModuleType:
    """Return the backend in which new shared variables are made.

    The one that the program has imported; of several imported ones the first of PyTensor, Aesara,
    Theano; if none is imported, the first of them that can be.

    Raises
    ------
    ImportError
        No backend is imported and none can be.
    """
    imported = _imported()
    if imported:
        return imported[0]
    reasons = []
    for name, distribution in BACKENDS.items():
        try:
            module = importlib.import_module(name)
            if _is_whole(module):
                return module
            reasons.append(f"{module!r} is not {distribution}")
        except ModuleNotFoundError as error:
            missing = error.name == name
            reasons.append(f"{distribution} is not installed" if missing else f"{name}: {error}")
        except Exception as error:  # an old Theano beside a new NumPy raises AttributeError
            reasons.append(f"importing {name} failed with {type(error).__name__}: {error}")
    raise ImportError(
        "expected PyTensor, Aesara or Theano, found none that works; pip install pytensor"
        f" ({'; '.join(reasons)})"
    )


def is_shared_variable(variable: Any) -> bool:
    """Tell whether `variable` is a shared variable of any backend."""
    return any(
        isinstance(variable, module.compile.sharedvalue.SharedVariable) for module in _imported()
    )
