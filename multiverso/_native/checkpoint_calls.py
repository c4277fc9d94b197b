"""What `save` and `load` of a session and of a table share: arguments, and the call of a load."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_int64
from pathlib import Path
from typing import Any, Final

from multiverso._native import capi, places
from multiverso._native.arguments import flag, integer
from multiverso._native.library import checked, lib
from multiverso._native.places import StrPath, path_bytes
from multiverso._native.remote import RemoteFolder
from multiverso.errors import CheckpointCorruptError, CheckpointIOError

#: The name of a checkpoint's folder: its number in the order of saving, and its step.
_FOLDER_NAME: Final = re.compile(r"(?P<number>[0-9]{6,})-step-(?P<step>[0-9]+)")
#: The bytes that one call verifies, few enough for Python to run signal handlers between calls.
BYTES_PER_CALL: Final = 64 << 20
#: The file without which a folder is no checkpoint.
MANIFEST: Final = "manifest.mv"
#: What errors call checkpoints that are not on this machine.
REMOTE: Final = "a folder of checkpoints"
#: How long other checkpoints are read to name an intact one.
_MOST_SECONDS: Final = 60.0


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
    load_function: Callable[..., None],
    handle: Any,
    directory: StrPath,
    missing_ok: bool,
    call: str = "mv.load",
) -> Any:
    """Load together with all ranks; return the step, or None if there is no checkpoint."""
    step = c_int64(-1)
    flags = capi.MV_MISSING_OK if flag(missing_ok, "missing_ok") else 0
    try:
        load_function(handle, path_bytes(directory), flags, byref(step))
    except (CheckpointCorruptError, CheckpointIOError) as error:
        name_intact(error, directory, call)
        raise
    return step.value if step.value >= 0 else None


def saved_in(directory: StrPath) -> list[Any]:
    """Return the checkpoints in a folder, in the order of saving; none if the folder is missing."""
    place = places.path_or_address(directory, "directory")
    if places.is_address(place):
        there = remote_checkpoints(RemoteFolder(place, REMOTE).folders())
        return [f"{place.rstrip('/')}/{name}" for name in there]
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # A file in the place of a folder is an error.
        names = os.listdir(place)
    return [Path(place, name) for name in numbered(names)]


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names of checkpoints among others, in the order of saving."""
    found = []
    for name in names:
        if match := _FOLDER_NAME.fullmatch(name):
            number, step = int(match["number"]), int(match["step"])
            if name == f"{number:06}-step-{step}" and max(number, step) < 2**63:
                found.append((number, name))
    return [name for _, name in sorted(found)]


def remote_checkpoints(folders: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the folders at an address that are checkpoints, in their order."""
    return [name for name in numbered(folders) if MANIFEST in folders[name]]


def name_intact(
    error: CheckpointCorruptError | CheckpointIOError, directory: StrPath, call: str = "mv.load"
) -> None:
    """Add to an error the newest intact checkpoint of the folder that is found within a minute."""
    if places.is_address(os.fspath(error.path or directory)):
        return  # Others are on another machine.
    damaged = Path(directory if error.path is None else error.path).parent
    if error.path is None or _FOLDER_NAME.fullmatch(damaged.name) is None:
        if not isinstance(error, CheckpointCorruptError):
            return  # The error is not about a checkpoint.
        damaged = Path(places.path(directory, "directory"))
    others = [path for path in saved_in(damaged.parent)[::-1] if path.name != damaged.name]
    deadline = time.monotonic() + _MOST_SECONDS
    advice = f"none of the {len(others)} other checkpoints in {damaged.parent} is intact"
    for path in others:
        with contextlib.suppress(CheckpointCorruptError, CheckpointIOError):
            if _verifies(path, deadline):
                advice = f"the newest intact checkpoint there is {path}: {call}({str(path)!r})"
            else:
                advice = (
                    f"the next older one is {path}, which could not be verified within "
                    f"{_MOST_SECONDS:g} s: multiverso verify {damaged.parent}"
                )
            break
    if others:
        error.args = (f"{error.args[0]}; {advice}",)


def _verifies(path: Path, deadline: float) -> bool:
    """Return whether all of a checkpoint was verified in time; raise an error if it is damaged."""
    handle = capi.MV_Checkpoint()
    checked.MV_CheckpointOpen(path_bytes(path), byref(handle))
    try:
        remaining = c_int64(1)
        while remaining.value and time.monotonic() < deadline:
            checked.MV_CheckpointVerify(handle, BYTES_PER_CALL, byref(remaining))
        return not remaining.value
    finally:
        lib.MV_CheckpointClose(handle)
