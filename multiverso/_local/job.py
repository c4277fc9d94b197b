"""How a process knows that it is a rank of a job on one machine without MPI.

`multiverso run` and `multiverso.spawn` set three variables for each rank, and torchrun sets its
own. The ranks meet at a Unix socket, and then share memory as in a job of MPI. A process that joins
an elastic session later has a variable that names the session.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from multiverso._mpi.launcher import find_launcher
from multiverso.errors import LauncherError

#: The variables of a rank: the name of the job, the rank, and the number of ranks.
NAME: Final = "MULTIVERSO_JOB"
RANK: Final = "MULTIVERSO_RANK"
SIZE: Final = "MULTIVERSO_SIZE"

#: The session that a process joins: its name, or the process id of a rank or of a rank's ancestor.
JOIN: Final = "MULTIVERSO_JOIN"
#: The least and the most workers of an elastic session, as in "2:8".
ELASTIC: Final = "MULTIVERSO_ELASTIC"

#: The bytes of the longest name that the C library takes.
_MAX_NAME_BYTES: Final = 64


class LocalJob(NamedTuple):
    """A rank of a job on one machine, on which no other job has its name."""

    name: str
    rank: int
    size: int

    def variables(self) -> dict[str, str]:
        """Return the variables that make a process this rank."""
        return {NAME: self.name, RANK: str(self.rank), SIZE: str(self.size)}


class WorkerRange(NamedTuple):
    """The least and the most workers that an elastic job has at the same time."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> "WorkerRange":
        """Return the range that a text such as "2:8" describes; raise ValueError for another."""
        least, _, most = text.partition(":")
        if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
            raise ValueError(f"expected MIN:MAX with 1 <= MIN <= MAX, received {text!r}")
        return cls(int(least), int(most))

    def variables(self) -> dict[str, str]:
        """Return the variables that make the session of a process elastic."""
        return {ELASTIC: f"{self.least}:{self.most}"}

    def __str__(self) -> str:
        """Return the range in words."""
        return f"{self.least} to {self.most} ranks"


def find_worker_range(environ: Mapping[str, str] = os.environ) -> WorkerRange | None:
    """Return the range that the launcher of an elastic job has set, or None."""
    if ELASTIC not in environ:
        return None
    try:
        return WorkerRange.parse(environ[ELASTIC])
    except ValueError as error:
        raise LauncherError(f"{ELASTIC}: {error}") from None


def joiner_variables(target: str, index: int) -> dict[str, str]:
    """Return the variables of a process that joins a session, and whose `local_rank` is `index`."""
    return {JOIN: target, RANK: str(index)}


def joiner_index(environ: Mapping[str, str] = os.environ) -> int:
    """Return the index that `joiner_variables` has set, or 0."""
    return _number(environ, RANK) if RANK in environ else 0


def find_join(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the session that this process is to join, or None; raise LauncherError for bytes."""
    return _text(environ, JOIN) or None


def new_name() -> str:
    """Return a name for a new job."""
    return f"{os.getpid()}-{os.urandom(8).hex()}"


def find_local_job(environ: Mapping[str, str] = os.environ) -> LocalJob | None:
    """Return the job without MPI of which this process is a rank from the start, or None.

    The launcher of an MPI job takes precedence, because it may have been started by such a rank.
    """
    if find_launcher(environ) is not None or find_join(environ) is not None:
        return None
    if NAME in environ:
        job = LocalJob(_text(environ, NAME), _number(environ, RANK), _number(environ, SIZE))
        if not (0 <= job.rank < job.size and 0 < len(job.name.encode()) <= _MAX_NAME_BYTES):
            raise LauncherError(
                f"expected a name of 1 to {_MAX_NAME_BYTES} bytes in {NAME} and a rank in {RANK} "
                f"below {SIZE}, received {job.variables()}"
            )
        return job
    if "TORCHELASTIC_RUN_ID" in environ:
        return _job_of_torchrun(environ)
    return None


def _job_of_torchrun(environ: Mapping[str, str]) -> LocalJob | None:
    size, here = _number(environ, "WORLD_SIZE"), _number(environ, "LOCAL_WORLD_SIZE")
    if size == 1:
        return None
    if here != size:
        raise LauncherError(
            f"torchrun started {here} of {size} ranks on this machine: expected all of them. Start "
            "a job on several machines with mpirun."
        )
    # When torchrun restarts a job, only the count changes.
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    values = "/".join(environ.get(name, "") for name in names)
    import hashlib  # It is here, because it would delay the start of every job.

    digest = hashlib.sha256(os.fsencode(values)).hexdigest()[:32]
    return LocalJob(f"torchrun-{digest}", _number(environ, "RANK"), size)


def _text(environ: Mapping[str, str], variable: str) -> str:
    """Return a variable, or "" without it; raise LauncherError if it is not UTF-8."""
    value = environ.get(variable, "")
    try:
        value.encode()
    except UnicodeEncodeError:
        msg = f"expected UTF-8 in the variable {variable}, received {os.fsencode(value)!r}"
        raise LauncherError(msg) from None
    return value


def _number(environ: Mapping[str, str], variable: str) -> int:
    value = environ.get(variable, "")
    if not value.isdecimal():
        raise LauncherError(f"expected a number in the variable {variable}, received {value!r}")
    return int(value)
