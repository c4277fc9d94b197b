"""How a process knows that it is a rank of a job on one machine without MPI.

`multiverso run` and `multiverso.spawn` set three variables for each rank, and torchrun sets its
own. The ranks meet at a Unix socket, and then share memory as in a job of MPI.
"""

import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multiverso._mpi.launcher import find_launcher
from multiverso.errors import LauncherError

#: The variables of a rank: the name of the job, the rank, and the number of ranks.
NAME: Final = "MULTIVERSO_JOB"
RANK: Final = "MULTIVERSO_RANK"
SIZE: Final = "MULTIVERSO_SIZE"

#: The bytes of the longest name that the C library takes.
_MAX_NAME_BYTES: Final = 64


@dataclass(frozen=True)
class LocalJob:
    """A rank of a job on one machine.

    Attributes
    ----------
    name : str
        The name of the job, which differs from that of any other job on the machine.
    rank, size : int
        This rank, and the number of ranks.

    """

    name: str
    rank: int
    size: int

    def variables(self) -> dict[str, str]:
        """Return the variables that make a process this rank."""
        return {NAME: self.name, RANK: str(self.rank), SIZE: str(self.size)}


def new_name() -> str:
    """Return a name for a new job."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def find_local_job(environ: Mapping[str, str] = os.environ) -> LocalJob | None:
    """Return the job without MPI of which this process is a rank, or None.

    The launcher of an MPI job takes precedence, because it may have been started by such a rank.

    Raises
    ------
    LauncherError
        If the variables are incomplete, or if torchrun started ranks on several machines.

    """
    if find_launcher(environ) is not None:
        return None
    if NAME in environ:
        job = LocalJob(environ[NAME], _number(environ, RANK), _number(environ, SIZE))
        if not (0 <= job.rank < job.size and 0 < len(job.name.encode()) <= _MAX_NAME_BYTES):
            msg = (
                f"expected a name of 1 to {_MAX_NAME_BYTES} bytes in {NAME} and a rank in {RANK} "
                f"below {SIZE}, received {job.variables()}"
            )
            raise LauncherError(msg)
        return job
    if "TORCHELASTIC_RUN_ID" in environ:
        return _job_of_torchrun(environ)
    return None


def _job_of_torchrun(environ: Mapping[str, str]) -> LocalJob | None:
    size, here = _number(environ, "WORLD_SIZE"), _number(environ, "LOCAL_WORLD_SIZE")
    if size == 1:
        return None
    if here != size:
        msg = (
            f"torchrun started {here} of {size} ranks on this machine: expected all of them. Start "
            "a job on several machines with mpirun."
        )
        raise LauncherError(msg)
    # When torchrun restarts a job, only the count changes.
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    values = "/".join(environ.get(name, "") for name in names)
    digest = hashlib.sha256(values.encode()).hexdigest()[:32]
    return LocalJob(f"torchrun-{digest}", _number(environ, "RANK"), size)


def _number(environ: Mapping[str, str], variable: str) -> int:
    value = environ.get(variable, "")
    if not value.isdecimal():
        msg = f"expected a number in the variable {variable}, received {value!r}"
        raise LauncherError(msg)
    return int(value)
