"""The processes of a job without MPI, which `multiverso run` and `multiverso.spawn` start."""

import contextlib
import functools
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from multiverso._local import guard, processes
from multiverso._local.cores import Share
from multiverso._local.job import ELASTIC, JOIN, NAME, RANK, SIZE, LocalJob, new_name
from multiverso._mpi.launcher import without_rank

#: Seconds between two looks at the processes.
_INTERVAL: Final = 0.02
#: What a rank gets of the cores if nobody has divided them.
_UNLIMITED: Final = Share()

#: What `watch` does when ranks have ended; see there.
Reaction: TypeAlias = Callable[
    [list["subprocess.Popen[bytes]"], list["subprocess.Popen[bytes]"]], int | None
]


class Rank(Protocol):
    """A process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """The number of the process."""

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a rank: that of this process without another launcher's job."""
    own = without_rank(os.environ)
    for name in (NAME, RANK, SIZE, JOIN, ELASTIC):
        own.pop(name, None)
    return {**own, **variables}


def exit_text(code: int) -> str:
    """Return how a process has ended, such as "was ended by SIGKILL"."""
    if code >= 0:
        return f"exited with {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def _begin(share: Share) -> None:
    """Prepare the process of a rank, which the kernel ends if the one that watches it ends."""
    guard.end_with_parent(signal.SIGKILL)
    share.bind()


def start(
    program: Sequence[str],
    variables: Mapping[str, str],
    share: Share = _UNLIMITED,
    *,
    reads_input: bool = False,
) -> subprocess.Popen[bytes]:
    """Start the program as the rank that the variables describe."""
    # Each rank has a process group of its own, so that Ctrl-C reaches only this process directly.
    return subprocess.Popen(
        program,
        env=environment({**share.variables, **variables}),
        stdin=None if reads_input else subprocess.DEVNULL,
        start_new_session=True,
        # preexec_fn is safe here, because the guard, which runs this code, has one thread.
        preexec_fn=functools.partial(_begin, share),
    )


def variables_of_job(size: int) -> list[dict[str, str]]:
    """Return the variables of each rank of a new job."""
    name = new_name()
    return [LocalJob(name, rank, size).variables() for rank in range(size)]


def start_all(
    program: Sequence[str],
    ranks: Iterable[Mapping[str, str]],
    shares: Iterable[Share] = itertools.repeat(_UNLIMITED),
) -> Iterator[subprocess.Popen[bytes]]:
    """Start ranks, given by their variables. As under mpirun, only the first reads the input."""
    for index, (variables, share) in enumerate(zip(ranks, shares, strict=False)):
        yield start(program, variables, share, reads_input=index == 0)


def watch(
    starts: Iterable[subprocess.Popen[bytes]], react: Reaction, is_stopped: Callable[[], bool]
) -> int:
    """Wait for the end of a job, end what still runs then, and return the job's exit code.

    Parameters
    ----------
    starts : iterable of Popen
        The processes of the ranks, which may be started by the iteration.
    react : callable
        A function that is called when ranks have ended, with these and a list of those that run, to
        which it may add. If it returns an exit code, the job has ended with that code.
    is_stopped : callable
        A function that returns whether the job is to be ended, with code 0.

    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for process in starts:
            running.append(process)
        while not is_stopped():
            guard.reap([process.pid for process in running])
            ended = [process for process in running if process.poll() is not None]
            running[:] = [process for process in running if process not in ended]
            if ended and (code := react(ended, running)) is not None:
                return code
            processes.await_end([process.pid for process in running], _INTERVAL)
        return 0
    finally:
        end(running)


def first_failure(
    *,
    ends_job: bool,
    allows_failures: bool = False,
    report: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> Reaction:
    """Return a reaction for `watch`: the code of the job is that of the first rank that failed.

    Parameters
    ----------
    ends_job : bool
        Whether the first failure ends the other ranks.
    allows_failures : bool, optional
        Whether the code is 0 if that of any rank is.
    report : callable, optional
        A function that is called with each rank that a signal has ended.

    """
    codes: list[int] = []

    def react(
        ended: Sequence[subprocess.Popen[bytes]], running: Sequence[subprocess.Popen[bytes]]
    ) -> int | None:
        for process in ended:
            if process.returncode < 0:
                report(process)
        codes.extend(process.returncode for process in ended)
        failed = next((code for code in codes if code), 0)
        if not running:
            return 0 if allows_failures and 0 in codes else failed
        return failed if failed and ends_job else None

    return react


def run(
    program: Sequence[str],
    shares: Sequence[Share],
    *,
    survive: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda sentence: None,
) -> int:
    """Run a job of a rank per share; return the exit code of the first rank that failed, or 0.

    The first rank that fails ends the others. With `survive` it does not, and the code is 0 if that
    of any rank is. All ranks are ended when `is_stopped` returns true. A rank that a signal ended
    has the negative number of the signal as its code, as in `subprocess`, and cannot print why, so
    `report` is called with a sentence.
    """
    started: list[subprocess.Popen[bytes]] = []  # in the order of the ranks

    def starts() -> Iterator[subprocess.Popen[bytes]]:
        for process in start_all(program, variables_of_job(len(shares)), shares):
            started.append(process)
            yield process

    def report_signal(process: subprocess.Popen[bytes]) -> None:
        rank = f"rank {started.index(process)} (process {process.pid})"
        report(f"{rank} {exit_text(process.returncode)}")

    reaction = first_failure(ends_job=not survive, allows_failures=survive, report=report_signal)
    return watch(starts(), reaction, is_stopped)


def end(ranks: Sequence[Rank]) -> None:
    """End the ranks that still run, with SIGTERM and, if that takes too long, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = [rank for rank in ranks if rank.poll() is None]
        for rank in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, number)
        deadline = time.monotonic() + guard.grace()
        while time.monotonic() < deadline and any(rank.poll() is None for rank in running):
            time.sleep(_INTERVAL)
