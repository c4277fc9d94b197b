"""What `save` and `load` of a session and of a table share: arguments, and the call of a load."""

from collections.abc import Callable
from ctypes import byref, c_int64
from typing import Any

from multiverso._native import capi
from multiverso._native.arguments import flag, integer
from multiverso._native.library import checked
from multiverso._native.places import StrPath, path_bytes


def save_options(
    directory: StrPath,
    step: object,
    keep: object,
    background: object = False,
    incremental: object = False,
) -> capi.MV_SaveOptions:
    """Return the options of a save; raise TypeError or ValueError if one is wrong."""
    raw = capi.MV_SaveOptions()
    checked.MV_SaveOptionsInit(byref(raw))
    raw.background = flag(background, "background")
    raw.incremental = flag(incremental, "incremental")
    raw.directory = path_bytes(directory)
    if step is not None:  # With 62 bits the next default, this step plus 1, cannot overflow.
        raw.step = integer(step, "step", 0, bits=62)
    if keep is not None:
        raw.keep = integer(keep, "keep", 1, bits=62)
    return raw


def load(
    load_function: Callable[..., None], handle: Any, directory: StrPath, missing_ok: bool
) -> Any:
    """Load together with all ranks; return the step, or None if there is no checkpoint."""
    step = c_int64(-1)
    flags = capi.MV_MISSING_OK if flag(missing_ok, "missing_ok") else 0
    load_function(handle, path_bytes(directory), flags, byref(step))
    return step.value if step.value >= 0 else None
