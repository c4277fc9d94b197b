"""What saving and loading have in common for a session and a table: the checks of their arguments.

Paths are made absolute at once: a save in the background outlives a change of the folder.
"""

import operator
import os
from collections.abc import Callable
from ctypes import byref, c_int64
from typing import Any, Final

import numpy as np

from multiverso._native import capi, library
from multiverso._native.library import lib

Directory = str | os.PathLike[str]

#: The whole numbers that the library takes.
_LIMIT: Final = 2**62


def save_options(
    directory: Directory, step: object, keep: object, background: object = False
) -> capi.MV_SaveOptions:
    """Return the options of a save; TypeError or ValueError if they are wrong."""
    if not isinstance(background, bool | np.bool_):
        msg = f"background: expected a bool, received {background!r}"
        raise TypeError(msg)
    raw = capi.MV_SaveOptions()
    library.call(lib.MV_SaveOptionsInit, byref(raw))
    raw.directory = path_bytes(directory)
    if step is not None:
        raw.step = _whole(step, "step", 0)
    if keep is not None:
        raw.keep = _whole(keep, "keep", 1)
    raw.background = bool(background)
    return raw


def load(function: Callable[..., int], handle: Any, directory: Directory, missing_ok: bool) -> Any:
    """Load with all ranks; return the step, or None if nothing is there and may be missing."""
    step = c_int64(-1)
    flags = capi.MV_MISSING_OK if missing_ok else 0
    library.call(function, handle, path_bytes(directory), flags, byref(step))
    return step.value if step.value >= 0 else None


def path_bytes(directory: Any) -> bytes:
    """Return an absolute path as the library takes it; TypeError or ValueError if it is none."""
    path = os.fspath(directory)
    if not isinstance(path, str):
        msg = f"directory: expected a path, received {directory!r}"
        raise TypeError(msg)
    if not path or "\0" in path:
        msg = f"directory: expected a path, received {path!r}"
        raise ValueError(msg)
    return os.fsencode(os.path.abspath(path))


def _whole(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        msg = f"{what}: expected an int, received {value!r}"
        raise TypeError(msg)
    number = operator.index(value)
    if not least <= number < _LIMIT:
        msg = f"{what}: expected {least} or more, received {number}"
        raise ValueError(msg)
    return number
