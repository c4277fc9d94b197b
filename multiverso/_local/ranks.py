"""The processes of a job without MPI, which `multiverso run` and `multiverso.spawn` start."""

import contextlib
import functools
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from multiverso._local import guard, processes
from multiverso._local.cores import Share
from multiverso._local.first_cause import Failure, explain, first_cause
from multiverso._local.job import ELASTIC, JOIN, NAME, RANK, SIZE, LocalJob, new_name
from multiverso._local.tagged_output import TaggedOutput, tag
from multiverso._mpi.launcher import without_rank
from multiverso._native.reports import VARIABLE, RankState, Reports

#: Seconds between two looks at the processes.
_INTERVAL: Final = 0.02
#: Seconds in which a rank that others have lost must end, if it has not said that it fails.
_CAUSE_SECONDS: Final = 5.0
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
    for name in (NAME, RANK, SIZE, JOIN, ELASTIC, VARIABLE):
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


class Processes:
    """The processes that a launcher has started for a job, and what they have reported."""

    def __init__(
        self, program: Sequence[str], *, tags: bool = False, report: Callable[[str], None]
    ) -> None:
        self._program = program
        self.report = report
        self._tags = tags
        self.output = TaggedOutput()
        self._reports = Reports()
        self._keys = map(str, itertools.count())
        self._started: dict[int, tuple[str, Mapping[str, str]]] = {}  # key, variables; by id

    def start(
        self, variables: Mapping[str, str], share: Share = _UNLIMITED, *, reads_input: bool = False
    ) -> "subprocess.Popen[bytes]":
        """Start the program as the rank that the variables describe."""
        key = next(self._keys)
        pipes = [self.output.open() for _ in range(2 if self._tags else 0)]
        own = {**share.variables, **variables, **self._reports.variables(key)}
        # Each rank has a process group of its own, so that Ctrl-C reaches only this process.
        process = subprocess.Popen(
            self._program,
            env=environment({"PYTHONUNBUFFERED": "1", **own} if self._tags else own),
            stdin=None if reads_input else subprocess.DEVNULL,
            stdout=pipes[0] if pipes else None,
            stderr=pipes[1] if pipes else None,
            pass_fds=[self._reports.descriptor],
            start_new_session=True,
            # preexec_fn is safe here, because the guard, which runs this code, has one thread.
            preexec_fn=functools.partial(_begin, share),
        )
        name = f"rank {variables[RANK]}" if NAME in variables else f"process {process.pid}"
        for target, pipe in enumerate(pipes, start=1):
            self.output.add(pipe, tag(name), target)
        self._started[process.pid] = (key, variables)
        return process

    def start_all(
        self,
        ranks: Iterable[Mapping[str, str]],
        shares: Iterable[Share] = itertools.repeat(_UNLIMITED),
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Start ranks, given by their variables. As under mpirun, only the first reads input."""
        for index, (variables, share) in enumerate(zip(ranks, shares, strict=False)):
            yield self.start(variables, share, reads_input=index == 0)

    def state(self, process: "subprocess.Popen[bytes]") -> RankState:
        """Return what a process has reported."""
        key = self._started[process.pid][0]
        return self._reports.states().get(key, RankState(key))

    def is_in_session(self, process: "subprocess.Popen[bytes]") -> bool:
        """Return whether a process, or one that it has started as the rank, is in a session."""
        state = self.state(process)
        return state.phase == "in" and processes.exists(state.pid)

    def had_session(self) -> bool:
        """Return whether a process of the job has been in a session."""
        return any(state.phase != "before" for state in self._reports.states().values())

    def failure(self, process: "subprocess.Popen[bytes]") -> Failure:
        """Return the end of a process that has failed, as the process has explained it."""
        variables = self._started[process.pid][1]
        rank = int(variables[RANK]) if NAME in variables else None
        return failure_of(self.state(process), process.pid, process.returncode, rank)

    def code_when_told(self, code: int, *, is_told: bool) -> int:
        """Return the exit code of the job, by what its ranks have reported until now."""
        return code_when_told(code, self._reports.states().values(), is_told=is_told)

    def close(self, *, is_cause_known: bool = True) -> None:
        """Print what ranks have left to this process to print, and forget all reports."""
        _print_rest(self._reports, self.report, is_cause_known=is_cause_known)


def failure_of(state: RankState, pid: int, code: int, rank: int | None = None) -> Failure:
    """Return the end of a process, as it has explained it; `rank` is used if it had no session."""
    rank = rank if state.rank is None else state.rank
    name = f"process {pid}" if rank is None else f"rank {rank} (process {pid})"
    own, lost = state.own_failure, state.loss
    began = time.monotonic() if own is None else own.time
    return Failure(name, code, began, rank, lost.cause if lost and not own else None)


def code_when_told(code: int, states: Iterable[RankState], *, is_told: bool) -> int:
    """Return the code of a job, that of its first cause, unless SIGTERM has been passed on.

    If the ranks save then, 143 says that they have. Others have the code that shells report.
    """
    states = list(states)
    if not any(state.saves for state in states):
        return -signal.SIGTERM if is_told else code
    has_saved = any(state.has_saved for state in states)
    # A signal may still end a rank that has saved. mpirun has its number, or 128 more.
    if has_saved and abs(code) % 128 in (signal.SIGTERM, signal.SIGKILL):
        return guard.TOLD_TO_END
    if code in (guard.TOLD_TO_END, -signal.SIGTERM):
        return 1
    return guard.TOLD_TO_END if code == 0 and is_told and has_saved else code


def explain_mpi_job(
    reports: Reports, code: int, report: Callable[[str], None], *, is_told: bool
) -> int:
    """Say why a job of mpirun failed; return the code of the first cause, else that of mpirun."""
    states = reports.states().values()
    failures = [
        failure_of(state, state.failure.pid, state.failure.code)
        for state in states
        if state.failure is not None and state.failure.code is not None
    ]
    first = first_cause(failures) if failures else None
    is_own = first is not None and first.cause is None
    # If no rank ended with the code of mpirun, mpirun has named the rank that a signal ended.
    is_known = is_own or code not in (0, *(failure.code for failure in failures))
    if first is not None and (is_own or not code):
        report(describe(first))
        code = first.code
    # If ranks have saved and none has failed, mpirun has a code of its own for what it ended.
    if code and first is None and any(state.has_saved for state in states):
        code = guard.TOLD_TO_END
    code = code_when_told(code, states, is_told=is_told)
    _print_rest(reports, report, is_cause_known=is_known)
    return code


def _print_rest(reports: Reports, report: Callable[[str], None], *, is_cause_known: bool) -> None:
    text, line = explain(reports.states().values(), is_cause_known=is_cause_known)
    reports.close()
    sys.stderr.write(text)
    if line:
        report(line)


def variables_of_job(size: int) -> list[dict[str, str]]:
    """Return the variables of each rank of a new job, with those that torchrun would set too."""
    name, master = new_name(), {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        master["MASTER_PORT"] = str(free.getsockname()[1])
    jobs = (LocalJob(name, rank, size) for rank in range(size))
    return [{**job.variables(), **master, "RANK": str(job.rank)} for job in jobs]


def watch(
    starts: Iterable["subprocess.Popen[bytes]"],
    react: Reaction,
    is_stopped: Callable[[], bool],
    started: Processes,
) -> int:
    """Wait for the end of a job, end what still runs then, and return the job's exit code.

    The iteration over `starts` may start the ranks. `react` gets the ranks that have ended since
    the last call and a list of those that run, to which it may add. The code that it returns, if
    any, ends the job.
    """
    output = started.output
    running: list[subprocess.Popen[bytes]] = []
    try:
        for process in starts:
            running.append(process)
        while not is_stopped():
            guard.reap([process.pid for process in running])
            ended = [process for process in running if process.poll() is not None]
            running[:] = [process for process in running if process not in ended]
            if (code := react(ended, running)) is not None:
                return code
            pids = [process.pid for process in running]
            processes.await_end(pids, _INTERVAL, output.descriptors)
            output.copy()
        end(running, output.copy)
        return react([process for process in running if process.poll() is not None], []) or 0
    finally:
        end(running, output.copy)
        output.copy(is_last=True)


class FirstFailure:
    """A reaction for `watch`: the job fails as the first rank has that failed by itself."""

    def __init__(
        self,
        started: Processes,
        *,
        ends_job: bool,
        allows_failures: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._started = started
        self._is_stopped = is_stopped
        self._ends_job = ends_job
        self._allows_failures = allows_failures
        self._failures: list[Failure] = []
        self._has_success = False
        self._waits: dict[int, float] = {}  # until when an end is awaited, by process id

    def react(
        self,
        ended: "Sequence[subprocess.Popen[bytes]]",
        running: "Sequence[subprocess.Popen[bytes]]",
    ) -> int | None:
        """Return the exit code of the job, if it is known and the job is to end."""
        for process in ended:
            self._has_success = self._has_success or not process.returncode
            if process.returncode:
                self._failures.append(self._started.failure(process))
                if not self._ends_job and process.returncode < 0:
                    self._started.report(describe(self._failures[-1]))
        if not running:
            return 0 if self._allows_failures and self._has_success else self.code()
        if not self._failures or not self._ends_job or self._is_waiting(running):
            return None
        self._note_loss(running)
        return self.code()

    def code(self) -> int:
        """Return the exit code of the first rank that failed by itself, or 0."""
        if not self._failures:
            return 0
        # Ranks that have saved are not to blame.
        others = [failure for failure in self._failures if failure.code != guard.TOLD_TO_END]
        first = first_cause(others or self._failures)
        # Who has pressed Ctrl-C knows why the ranks have ended.
        is_told = self._is_stopped() and first.code in (-signal.SIGINT, -signal.SIGTERM)
        if (self._ends_job or first.code > 0) and first.code != guard.TOLD_TO_END and not is_told:
            self._started.report(describe(first))
        return first.code

    def _note_loss(self, running: "Sequence[subprocess.Popen[bytes]]") -> None:
        """Tell readers of the session, through a rank that still runs, which rank failed first."""
        first = first_cause(self._failures)
        rank = first.rank if first.cause is None else first.cause
        pid = next((pid for each in running if (pid := self._started.state(each).pid)), None)
        if rank is not None and pid is not None:
            processes.note_loss(pid, rank)

    @property
    def is_cause_known(self) -> bool:
        """Whether a rank has failed by itself."""
        return any(failure.cause is None for failure in self._failures)

    def _is_waiting(self, running: "Sequence[subprocess.Popen[bytes]]") -> bool:
        """Return whether a rank that still runs may have failed before those that have ended."""
        first = first_cause(self._failures)
        states = {process.pid: self._started.state(process) for process in running}
        seconds = guard.grace()
        waits = [
            pid
            for pid, state in states.items()
            if (own := state.own_failure) and (first.cause is not None or own.time < first.time)
        ]
        if not waits and first.cause is not None:
            seconds = _CAUSE_SECONDS
            lost = {failure.cause for failure in self._failures}
            lost |= {state.loss.cause for state in states.values() if state.loss is not None}
            waits = [pid for pid, state in states.items() if state.rank in lost]
        now = time.monotonic()
        return any(now < self._waits.setdefault(pid, now + seconds) for pid in waits)


def describe(failure: Failure) -> str:
    """Return how a rank has ended, such as "rank 1 (process 17) exited with 3"."""
    after = "" if failure.cause is None else f" after it had lost rank {failure.cause}"
    return f"{failure.name} {exit_text(failure.code)}{after}"


def run(
    program: Sequence[str],
    shares: Sequence[Share],
    *,
    survive: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda sentence: None,
    tags: bool = False,
) -> int:
    """Run a job of a rank per share; return the exit code of the first cause of a failure, or 0.

    A rank that fails ends the others. With `survive` it does not, and the code is 0 if that of any
    rank is. A rank that a signal ended has the negative number of the signal as its code.
    """
    started = Processes(program, tags=tags, report=report)
    starts = started.start_all(variables_of_job(len(shares)), shares)
    first = FirstFailure(
        started, ends_job=not survive, allows_failures=survive, is_stopped=is_stopped
    )
    try:
        code = watch(starts, first.react, is_stopped, started)
        return started.code_when_told(code, is_told=is_stopped())
    finally:
        started.close(is_cause_known=first.is_cause_known)


def end(ranks: Sequence[Rank], meanwhile: Callable[[], object] = lambda: None) -> None:
    """End the ranks that still run, with SIGTERM and, if that takes too long, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = [rank for rank in ranks if rank.poll() is None]
        for rank in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, number)
        deadline = time.monotonic() + guard.grace()
        while time.monotonic() < deadline and any(rank.poll() is None for rank in running):
            time.sleep(_INTERVAL)
            meanwhile()
