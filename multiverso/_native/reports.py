"""What ranks report to the launcher that watches them, so that it need not guess.

A launcher (`multiverso run`, `join`) makes one file without a name for its job, and each rank adds
lines to it. A process finds the file through a variable, as a descriptor that it inherits. If the
program has closed that descriptor, or uses its number for something else, the process opens the
descriptor of the launcher instead, where the system has /proc. Nothing waits for a reader, and what
a rank has reported is there after its death.

A line is a JSON object with these entries:

key : str
    The process among those that the launcher has started; empty under mpirun, where all ranks have
    the same variables.
pid, time : int, float
    The process, and when it reported, in seconds of the system's monotonic clock.
event : str
    One of these, with further entries:

    - ``opened``: the process is in a session, as `rank`. `saves` says whether SIGTERM lets it save
      and leave.
    - ``saved``: this rank has saved because of SIGTERM.
    - ``closed``: that session has ended as the program wanted: by a shutdown with all ranks, or
      because this rank left those that continue. What fails later has nothing to do with it.
    - ``left``: that session has ended in another way, such as by an exception. `cause` is as below.
    - ``lost``: a call failed because of another rank, `cause`, with the class `error` and the
      message `text`. Whatever ends this process later, before it opens another session, is a
      consequence.
    - ``failed``: the program ends with the exit code `code`; `error` and `text` are the class of
      the exception and what Python prints about it, and `cause` is the rank that was lost before,
      or None. The process prints `text` itself if no other has left or failed by itself before.

Only the process that imports this package first in the place of a rank reports, and neither what it
forks nor the programs that it starts: the variable names the process from then on.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from multiverso.errors import AbortedError, PeerError, PeerLostError

#: The variable: the launcher's process id and descriptor, the device and inode of the file, the
#: key, and, once a process has claimed it, the id of that process.
VARIABLE: Final = "MULTIVERSO_REPORTS"

#: The lowest descriptor of the file, above the standard streams, which may be closed.
_LOWEST: Final = 3
#: The greatest number of characters of a traceback in a report.
_MAX_TEXT: Final = 50_000


class Report(NamedTuple):
    """A line of the file, and its number, `order`. Entries that an event lacks are None."""

    key: str
    pid: int
    time: float
    event: str
    rank: int | None = None
    cause: int | None = None
    error: str | None = None
    code: int | None = None
    text: str = ""
    saves: bool = False
    order: int = 0

    @property
    def process(self) -> str:
        """What is different for each process of the job."""
        return self.key or str(self.pid)

    @property
    def is_own_failure(self) -> bool:
        """Whether this rank left its session, or its program failed, by itself."""
        return self.event in ("left", "failed") and self.cause is None


@dataclass
class RankState:
    """What a process of the job has reported until now, about its last session."""

    process: str
    pid: int = 0
    rank: int | None = None
    #: "after" means a wanted end. A rank that left in another way has failed "in" its session.
    phase: Literal["before", "in", "after"] = "before"
    loss: Report | None = None  # about the first rank that it has lost
    own_failure: Report | None = None  # the first that says that it fails by itself
    failure: Report | None = None  # of its end
    saves: bool = False  # Whether SIGTERM lets it save and leave.
    has_saved: bool = False

    def add(self, report: Report) -> None:
        """Add what the process has reported next."""
        if report.event == "opened":
            self.pid, self.rank, self.saves = report.pid, report.rank, report.saves
            self.phase = "in"
            self.loss = self.own_failure = self.failure = None
        elif report.event == "closed":
            self.phase = "after"
        elif report.event == "saved":
            self.has_saved = True
        elif report.event == "lost":
            self.loss = self.loss or report
        elif report.event == "failed":
            self.failure = report
        if report.is_own_failure:
            self.own_failure = self.own_failure or report


class _Place(NamedTuple):
    """Where this process reports."""

    launcher: int
    descriptor: int
    device: int
    inode: int
    key: str

    def is_at(self, descriptor: int) -> bool:
        try:
            status = os.fstat(descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.device, self.inode)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int | None]:
        """Yield a descriptor of the file, or None if this process cannot reach it any more."""
        if self.is_at(self.descriptor):
            yield self.descriptor
            return
        try:
            path = f"/proc/{self.launcher}/fd/{self.descriptor}"
            other = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            yield None
            return
        try:
            yield other if self.is_at(other) else None
        finally:
            os.close(other)


class _ProcessState:
    """What this process knows about itself and its last session."""

    place: _Place | None = None  # where process `pid` reports
    pid = 0
    rank: int | None = None
    loss: tuple[int, str] | None = None  # the first rank that it has lost, and the error's class
    has_failed = False  # It has left by itself, so what it loses then is no cause.


_process: Final = _ProcessState()


def claim() -> None:
    """Let this process, and no other that inherits its environment, report as the rank."""
    fields = os.environ.get(VARIABLE, "").split(":")
    own = str(os.getpid())
    if len(fields) not in (5, 6) or fields[5:] not in ([], [own]):
        return
    with contextlib.suppress(ValueError):
        launcher, descriptor, device, inode = map(int, fields[:4])
        _process.place = _Place(launcher, descriptor, device, inode, fields[4])
        _process.pid = os.getpid()
        os.environ[VARIABLE] = ":".join([*fields[:5], own])


def report_opened(rank: int, *, saves: bool) -> None:
    """Report that this process is in a session, and what SIGTERM lets it do."""
    _process.loss, _process.rank, _process.has_failed = None, rank, False
    _report("opened", rank=rank, saves=saves)


def report_saved() -> None:
    """Report that this process has saved because of SIGTERM."""
    _report("saved")


def report_end(*, is_wanted: bool) -> None:
    """Report that the session of this process has ended, and whether its program wanted that."""
    _process.has_failed = not is_wanted and _process.loss is None
    _report("closed" if is_wanted else "left", cause=_cause())


def _report(event: str, **entries: Any) -> None:
    with _file() as descriptor:
        if descriptor is not None:
            _write(descriptor, event, entries)


def note_loss(error: PeerError) -> None:
    """Remember, and report, that a call failed because another rank was lost or has failed."""
    if not isinstance(error, PeerLostError | AbortedError) or error.rank is None:
        return
    if error.rank != _process.rank and _process.loss is None and not _process.has_failed:
        _process.loss = (error.rank, type(error).__name__)
        message = str(error.args[0]) if error.args else ""
        _report("lost", cause=error.rank, error=type(error).__name__, text=message)


def _cause() -> int | None:
    return None if _process.loss is None else _process.loss[0]


def loss() -> tuple[int, str] | None:
    """Return the rank that this process has lost first in its last session, and the error."""
    return _process.loss


def report_failure(code: int, error: BaseException, text: str) -> bool:
    """Report that the program ends; return whether this process is to print the text itself.

    Of the ranks that fail by themselves, the first does. The launcher says the rest in one line.
    """
    cause = _cause()
    entries = {"code": code, "error": type(error).__name__, "cause": cause}
    with _file() as descriptor:
        if descriptor is None or not _write(
            descriptor, "failed", {**entries, "text": text[-_MAX_TEXT:]}
        ):
            return True
        first = first_own_failure(_states(descriptor).values())
        return cause is None and first is not None and first.pid == os.getpid()


@contextlib.contextmanager
def _file() -> Iterator[int | None]:
    """Yield a descriptor of the file, or None if no launcher collects what this process reports."""
    if _process.place is None or _process.pid != os.getpid():
        yield None
    else:
        with _process.place.opened() as descriptor:
            yield descriptor


def _write(descriptor: int, event: str, entries: dict[str, Any]) -> bool:
    place = _process.place
    key = "" if place is None else place.key
    line = {"key": key, "pid": os.getpid(), "time": time.monotonic(), "event": event, **entries}
    try:
        # The file is open for appending, so the lines of several ranks are not mixed.
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    except OSError:
        return False
    return True


def _states(descriptor: int) -> dict[str, RankState]:
    content = b""
    with contextlib.suppress(OSError):
        while part := os.pread(descriptor, 1 << 20, len(content)):
            content += part
    found: dict[str, RankState] = {}
    for order, line in enumerate(content.split(b"\n")[:-1]):
        with contextlib.suppress(ValueError, TypeError):  # Another program wrote it.
            report = Report(**{**json.loads(line), "order": order})
            found.setdefault(report.process, RankState(report.process)).add(report)
    return found


def first_own_failure(states: Iterable[RankState]) -> Report | None:
    """Return the first report of a process that it fails by itself."""
    found = [state.own_failure for state in states if state.own_failure is not None]
    return min(found, key=lambda report: report.order, default=None)


class Reports:
    """The file of a launcher."""

    def __init__(self) -> None:
        import fcntl  # Windows, where no launcher runs, does not have it.

        if hasattr(os, "memfd_create"):
            first = os.memfd_create("multiverso-reports")
        else:
            import tempfile

            with tempfile.TemporaryFile() as file:
                first = os.dup(file.fileno())
        self.descriptor = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        os.close(first)
        flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags | os.O_APPEND)

    def variables(self, key: str) -> dict[str, str]:
        """Return the variable with which a process, which inherits the descriptor, reports."""
        status = os.fstat(self.descriptor)
        place = (os.getpid(), self.descriptor, status.st_dev, status.st_ino, key)
        return {VARIABLE: ":".join(map(str, place))}

    def states(self) -> dict[str, RankState]:
        """Return what each process has reported, by its `Report.process`."""
        return _states(self.descriptor)

    def close(self) -> None:
        """Close the file, which ends with the last process that inherits it."""
        os.close(self.descriptor)
