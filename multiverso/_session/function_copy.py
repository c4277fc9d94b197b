"""Copies of functions and of what they return, on the way between processes."""

import functools
import importlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any


def can_import(function: Callable[..., Any]) -> bool:
    """Return whether another process can import the function."""
    while isinstance(function, functools.partial):
        function = function.func
    script = getattr(sys.modules["__main__"], "__file__", None) or ""
    is_of_main = getattr(function, "__module__", "__main__") == "__main__"
    if is_of_main and not os.path.isfile(script):  # It may be "<stdin>".
        return False
    try:
        pickle.dumps(function)
    except Exception:  # The type depends on the reason; it is AttributeError for a local function.
        return False
    return True


class Copied:
    """A function and its arguments, or what it returned, on the way to another process.

    They are in a file that the process inherits: if it ended before it had read a full pipe, the
    writer would wait forever. A forked process uses the `value` itself.
    """

    def __init__(self, value: Any, copies: bool) -> None:
        self.value = value
        self._copies = copies
        self._file: Any = None  # It is open until the process has started.

    def dumps(self) -> bytes:
        if self._copies:
            return bytes(importlib.import_module("cloudpickle").dumps(self.value))
        return bytes(reduction.ForkingPickler.dumps(self.value))

    def __reduce__(self) -> tuple[Any, ...]:
        memory = getattr(os, "memfd_create", None)
        self._file = tempfile.TemporaryFile() if memory is None else open(memory("call"), "w+b")
        self._file.write(self.dumps())
        self._file.seek(0)
        return _load, (reduction.DupFd(self._file.fileno()),)


def _load(descriptor: Any) -> Any:
    # The descriptor is inherited from the caller of `spawn`, so no other process has written to it.
    with open(descriptor.detach(), "rb") as file:
        return pickle.load(file)
