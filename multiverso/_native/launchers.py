"""Which launchers' variables are about this process, not about the rank that has started it."""

import ctypes
import os
import sys
from ctypes import byref, c_int32
from typing import Final

from multiverso._mpi.launcher import LAUNCHERS
from multiverso._native import capi
from multiverso._native.library import checked

#: The variable with which a rank marks the variables of its launchers as its own. Its value begins
#: with the process id of the rank.
OWNER: Final = "MULTIVERSO_RANK_OWNER"

#: Makes the session of a rank elastic, but does not identify the rank.
_ELASTIC: Final = "MULTIVERSO_ELASTIC"

#: The variables of each launcher by which this package finds it.
_VARIABLES: Final = {
    capi.MV_LAUNCHER_MULTIVERSO: (
        "MULTIVERSO_JOB",
        "MULTIVERSO_RANK",
        "MULTIVERSO_SIZE",
        "MULTIVERSO_JOIN",
    ),
    capi.MV_LAUNCHER_MPI: tuple(
        {variable for launcher in LAUNCHERS for variable in launcher.found_by}
    ),
    capi.MV_LAUNCHER_TORCHRUN: ("TORCHELASTIC_RUN_ID",),
}


def own_environ(*, opens: bool = False) -> dict[str, str]:
    """Return the environment without the variables of launchers that are about another process.

    The variables that remain are marked as those of this process. With `opens`, before it opens a
    session as the rank that they describe, it raises StateError if another process is the same
    rank.
    """
    launchers = c_int32()
    checked.MV_ClaimRank(opens, byref(launchers))
    if sys.platform != "win32":  # The library changes the environment, but not Python's copy of it.
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_char_p
        mark = getenv(OWNER.encode())
        if mark is not None and os.environ.get(OWNER) != os.fsdecode(mark):
            os.environ[OWNER] = os.fsdecode(mark)
    own = dict(os.environ)
    for launcher, names in _VARIABLES.items():
        if not launchers.value & launcher:
            for name in names:
                own.pop(name, None)
    if not launchers.value and len(own) < len(os.environ):
        own.pop(_ELASTIC, None)
    return own


def owner_of(environ: dict[str, str]) -> int | None:
    """Return the rank's process id if `environ`, from `own_environ`, lacks variables of a rank."""
    if len(environ) == len(os.environ):
        return None
    process = os.environ.get(OWNER, "").partition(":")[0]
    return int(process) if process.isdecimal() and int(process) != os.getpid() else None
