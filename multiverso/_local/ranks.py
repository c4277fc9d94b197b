"""The processes of a job without MPI, which `multiverso run` and `multiverso.spawn` start."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from multiverso._local.job import LocalJob, new_name
from multiverso._mpi.mpirun import without_rank

#: Seconds that ranks have to end after each signal.
_GRACE: Final = 10.0
#: Seconds between two looks at the processes.
_INTERVAL: Final = 0.02
#: The option of Linux's prctl that sends a signal to a process whose parent has ended.
_PR_SET_PDEATHSIG: Final = 1


class Rank(Protocol):
    """A process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """The number of the process."""

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""


def environment(job: LocalJob) -> dict[str, str]:
    """Return the environment of a rank: that of this process without another launcher's job."""
    return {**without_rank(os.environ), **job.variables()}


def end_with_parent() -> None:
    """Let this process end when its parent ends, where the system can arrange that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def run(
    program: Sequence[str],
    size: int,
    *,
    survive: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Run a job of `size` ranks; return the exit code of the first rank that failed, or 0.

    The first rank that fails ends the others. With `survive` it does not, and the code is 0 if that
    of any rank is. All ranks are ended when `is_stopped` returns true. A rank that a signal ended
    has the negative number of the signal as its code, as in `subprocess`.
    """
    name = new_name()
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            # As under mpirun, only rank 0 reads the standard input. Each rank has a process group
            # of its own, so that Ctrl-C reaches only this process directly.
            process = subprocess.Popen(
                program,
                env=environment(LocalJob(name, rank, size)),
                stdin=None if rank == 0 else subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,  # It is safe, because this process has one thread.
            )
            ranks.append(process)
        while not is_stopped():
            codes = [process.poll() for process in ranks]
            failed = next((code for code in codes if code), 0)
            if None not in codes:
                return 0 if survive and 0 in codes else failed
            if failed and not survive:
                return failed
            time.sleep(_INTERVAL)
        return 0
    finally:
        end(ranks)


def end(ranks: Sequence[Rank]) -> None:
    """End the ranks that still run, with SIGTERM and, if that takes too long, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = [rank for rank in ranks if rank.poll() is None]
        for rank in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, number)
        deadline = time.monotonic() + _GRACE
        while time.monotonic() < deadline and any(rank.poll() is None for rank in running):
            time.sleep(_INTERVAL)
