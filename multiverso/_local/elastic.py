"""The processes of an elastic job on one machine, and the replacement of those that fail."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from multiverso._local import ranks
from multiverso._local.cores import Share
from multiverso._local.first_cause import Failure, cause_of, first_cause
from multiverso._local.guard import TOLD_TO_END
from multiverso._local.job import WorkerRange, joiner_variables

#: If a rank and its replacements fail this many times in a row, each within this many seconds of
#: its start, the script cannot work, and the rank is not replaced again. The time includes the
#: imports of the script, which take long with large frameworks.
_QUICK_SECONDS: Final = 30.0
_MAX_QUICK_FAILURES: Final = 5

#: The ends by these signals come from outside, so they do not count as failures of the script.
_OUTSIDE_SIGNALS: Final = (-signal.SIGKILL, -signal.SIGTERM)


@dataclass
class _Start:
    """A process of a rank, or of a joiner that replaces one."""

    #: The rank that the process is or replaces, which tells it which GPU is free.
    index: int
    variables: Mapping[str, str]
    #: Whether the process joins the session, rather than opening it together with others.
    joins: bool
    #: The number of quick failures in a row before this process.
    quick_failures: int = 0
    #: When the process was started, by `time.monotonic`.
    started: float = 0.0


class ElasticJob:
    """An elastic job, of a `program` with its arguments, and a share for each rank at the start.

    A rank that fails does not end the others. If fewer than the least number then run, the job ends
    with the code of that rank. Otherwise its code is 143 if the last worker has saved after
    SIGTERM, and else that of the last rank to end.
    """

    def __init__(
        self,
        program: Sequence[str],
        shares: Sequence[Share],
        workers: WorkerRange,
        *,
        respawn: bool,
        report: Callable[[str], None],
        tags: bool = False,
    ) -> None:
        self._started = ranks.Processes(program, tags=tags, report=report)
        self._shares = shares
        self._workers = workers
        self._respawn = respawn
        self._report = report
        self._starts: dict[int, _Start] = {}  # by process id
        self._failures: list[Failure] = []  # that nothing has replaced
        self._after: list[Failure] = []  # those of ranks that had ended their session before
        self._had_success = False  # whether a rank has ended with 0
        self._code = 0  # of the last rank to end
        self._has_saved = False  # whether the last worker has saved after SIGTERM

    def _first_ranks(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start the first ranks."""
        for rank, variables in enumerate(ranks.variables_of_job(len(self._shares))):
            yield self._start(_Start(rank, variables, joins=False), reads_input=rank == 0)

    def run(self, is_stopped: Callable[[], bool]) -> int:
        """Run the job; return its exit code, as `ranks.watch` does."""
        try:
            code = ranks.watch(self._first_ranks(), self._react, is_stopped, self._started)
            return self._started.code_when_told(code, is_told=is_stopped())
        finally:
            self._started.close()

    def _react(
        self, ended: list[subprocess.Popen[bytes]], running: list[subprocess.Popen[bytes]]
    ) -> int | None:
        """Replace ranks that have failed, or return the exit code of the job."""
        if not ended:
            return None
        is_open = any(self._started.is_in_session(process) for process in running)
        failed: list[Failure] = []
        for process in ended:
            start = self._starts.pop(process.pid)
            state = self._started.state(process)
            if state.has_saved and process.returncode == TOLD_TO_END:
                self._has_saved = True
                continue
            if not process.returncode:
                self._had_success = True
                continue
            phase = state.phase
            if phase == "after":
                self._report(f"{_describe(process)} after its session, so nothing replaces it")
                self._after.append(self._started.failure(process))
                failed.append(self._after[-1])
            elif running and (replacement := self._replacement(start, process, is_open)):
                running.append(replacement)
            elif start.joins and phase == "before" and not is_open:
                continue  # The others had ended the session before this process could join.
            else:
                failed.append(self._started.failure(process))
        self._failures += failed
        code = cause_of(first_cause(failed), self._failures).code if failed else 0
        if failed or any(not process.returncode for process in ended):
            self._code = code
        if failed and len(running) < self._workers.least:
            self._report(
                f"the job ends, because {len(running)} ranks remain: expected at least "
                f"{self._workers.least}"
            )
            return code
        if running:
            return None
        # Nobody has done the work of a rank that failed after its session.
        if self._after:
            return first_cause(self._after).code
        return TOLD_TO_END if self._has_saved else self._code

    def _replacement(
        self, start: _Start, process: subprocess.Popen[bytes], is_open: bool
    ) -> subprocess.Popen[bytes] | None:
        """Start and return the replacement of a rank that failed, if there can be one."""
        ended = _describe(process)
        is_quick = time.monotonic() - start.started < _QUICK_SECONDS
        if process.returncode not in _OUTSIDE_SIGNALS:
            start.quick_failures = start.quick_failures + 1 if is_quick else 0
        # Before the session is open, the other ranks wait for this one. After its end, nobody can
        # join.
        is_over = not is_open and (self._had_success or self._started.had_session())
        if not self._respawn or is_over:
            self._report(ended)
            return None
        if start.quick_failures >= _MAX_QUICK_FAILURES:
            self._report(
                f"{ended}; it is not replaced, because this is failure {start.quick_failures} in a "
                f"row within {_QUICK_SECONDS:g} s of the start"
            )
            return None
        if is_open:
            variables = joiner_variables(str(os.getpid()), start.index)
            start = _Start(start.index, variables, joins=True, quick_failures=start.quick_failures)
        replacement = self._start(start)
        self._report(f"{ended}; process {replacement.pid} replaces it")
        return replacement

    def _start(self, start: _Start, *, reads_input: bool = False) -> subprocess.Popen[bytes]:
        variables = {**start.variables, **self._workers.variables()}
        share = self._shares[start.index]
        process = self._started.start(variables, share, reads_input=reads_input)
        start.started = time.monotonic()
        self._starts[process.pid] = start
        return process


def _describe(process: subprocess.Popen[bytes]) -> str:
    return f"process {process.pid} {ranks.exit_text(process.returncode)}"
