"""`multiverso.spawn`: runs a function as the ranks of a job, without a launcher and without MPI."""

import contextlib
import importlib.util
import multiprocessing
import multiprocessing.spawn
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, TypeVar

from multiverso import _session
from multiverso._extras import MissingExtraError, install_command
from multiverso._local import guard, processes, ranks as local_ranks
from multiverso._local.cores import Cores, all_thread_variables
from multiverso._local.first_cause import Failure, consequences, first_cause
from multiverso._local.guard import TOLD_TO_END
from multiverso._local.job import LocalJob, new_name
from multiverso._native import arguments, reports
from multiverso._native.exception_text import describe
from multiverso._session import leaving, notice
from multiverso._session.function_copy import Copied, can_import
from multiverso._session.notice import EndOfJob
from multiverso.errors import OperationTimeout, RankError, StateError

_T = TypeVar("_T")

#: Seconds in which a rank that others have lost must have reported its own failure.
_CAUSE_SECONDS: Final = 5.0

#: Seconds that a process has to begin. It imports the script before, and with it the frameworks.
_START_SECONDS: Final = 300.0

#: Seconds that a process has to end after its function has returned.
_END_SECONDS: Final = 10.0

#: Seconds between two looks at the processes. A process that has started others may end without
#: closing its pipe, which they have inherited.
_INTERVAL: Final = 0.1

#: The ways to start a process that `spawn` accepts, as `multiprocessing` names them.
_METHODS: Final = ("spawn", "fork", "forkserver")

#: What a process sends before it calls the function. If it leaves because of SIGTERM, it sends the
#: exit code.
_STARTED: Final = "started"


@arguments.suggests_names
def spawn(
    function: Callable[..., _T],
    nprocs: int,
    args: Sequence[Any] = (),
    *,
    method: str | None = None,
    timeout: float | None = None,
) -> list[_T]:
    """Run ``function(*args)`` in `nprocs` processes, which are the ranks of a job on this machine.

    Neither MPI nor a launcher is needed. Each process calls `init` as under mpirun, and a session
    that is still open when the function returns is shut down. The call blocks until all processes
    have ended. The first one that fails ends the others. If this process is killed, so are they,
    and a SIGTERM to it reaches them (docs/faults.md). Each process may start as many threads as it
    has cores: ``OMP_NUM_THREADS`` and its like are set for it, unless they are set already.

    Parameters
    ----------
    function : callable
        The program of a rank. The processes import it, so a script must call `spawn` below
        ``if __name__ == "__main__":``. A function that cannot be imported, since it was defined in
        a notebook, an interactive interpreter or another function, is copied by cloudpickle, with
        the global variables that it uses.
    nprocs : int
        The number of ranks, at least 1.
    args : sequence, optional
        The arguments of the function, the same for all ranks.
    method : {"spawn", "fork", "forkserver"}, optional
        How `multiprocessing` starts the processes. The default is ``"spawn"``, which works after
        this process has used PyTorch or JAX. Without cloudpickle, a function that cannot be
        imported needs ``"fork"``, which is then the default in a process with one thread.
    timeout : float, optional
        Seconds until the processes are ended, if they still run. By default they may run for ever.

    Returns
    -------
    list
        What the function returned, in rank order. `multiprocessing` must be able to pickle it.

    Raises
    ------
    RankError
        If a rank failed, or did not begin within five minutes. The message has its traceback.
    OperationTimeout
        If ranks still ran after `timeout` seconds. The message names them.
    SystemExit
        With code 143, if the ranks have left together (`check_leaving`), or after SIGTERM.
    RuntimeError
        If a script calls `spawn` while a rank imports it: not below ``if __name__ == "__main__":``.
    ImportError
        If the function cannot be imported, cloudpickle is missing, and this process has threads.
    StateError
        If the processes would be forked from one with an open session.

    Examples
    --------
    >>> import multiverso as mv
    >>> def total():
    ...     mv.init()
    ...     table = mv.ArrayTable(1)
    ...     table.add([mv.rank() + 1])
    ...     mv.barrier()
    ...     return float(table.get()[0])
    >>> mv.spawn(total, 2, method="fork")
    [3.0, 3.0]

    """
    size = arguments.integer(nprocs, "nprocs", 1)
    end = None if timeout is None else time.monotonic() + arguments.seconds(timeout, "timeout")
    # This raises the RuntimeError of multiprocessing if this process is still importing its script.
    # A forked process would run the rest of the script.
    multiprocessing.spawn.get_preparation_data("rank")
    copies = method != "fork" and not can_import(function)
    if copies and importlib.util.find_spec("cloudpickle") is None:
        if method is not None or _num_threads() > 1:
            raise _missing_cloudpickle(method)
        method, copies = "fork", False
    method = arguments.choice(method or "spawn", "method", _METHODS)
    context: Any = multiprocessing.get_context(method)
    if method == "fork" and _session.is_open():
        msg = "spawn: expected no open session in a process to be forked: call mv.shutdown() first"
        raise StateError(msg)
    call = (function, tuple(args))
    name = new_name()
    threads = all_thread_variables(Cores.find().threads(size))
    ranks: list[_Rank] = []
    with _ending_at_sigterm():
        try:
            for rank in range(size):
                job = LocalJob(name, rank, size)
                with _hidden_script(), _limited_threads(threads):
                    ranks.append(_Rank(context, Copied(call, copies), job, threads, copies))
            values = _collect(ranks, end)
            for started in ranks:  # A process still has to write what it has printed.
                started.await_end()
            left = {started.code or 0 for started in ranks} - {0}
            if left:
                raise EndOfJob(max(left - {TOLD_TO_END}, default=TOLD_TO_END))
            return values
        except _ToldToEnd:
            local_ranks.end(ranks)
            raise EndOfJob(_code_when_told(ranks)) from None
        finally:
            local_ranks.end(ranks)
            for started in ranks:
                started.close()


@contextlib.contextmanager
def _ending_at_sigterm() -> Iterator[None]:
    """Let SIGTERM, without a handler of the caller, end the block by an exception."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit_at_sigterm)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_at_sigterm(number: int, _frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # It may come again while the ranks end.
    raise _ToldToEnd


class _ToldToEnd(SystemExit):
    """SIGTERM has been sent to the caller of `spawn`."""


def _code_when_told(ranks: Sequence["_Rank"]) -> int:
    """Return the exit code of ranks that have ended after SIGTERM: 143 if they have saved."""
    codes = [rank.end_code() for rank in ranks]
    failed = next((code for code in codes if code not in (0, TOLD_TO_END)), None)
    if failed is not None:
        return failed if failed > 0 else 128 - failed
    return TOLD_TO_END if TOLD_TO_END in codes else 1


def _missing_cloudpickle(method: str | None) -> MissingExtraError:
    reason = f", since this process has {_num_threads()} threads and so cannot be forked"
    msg = (
        "mv.spawn needs cloudpickle to copy a function that other processes cannot import"
        f"{'' if method else reason}: {install_command('spawn')}, or define the function in a "
        "module"
    )
    return MissingExtraError(msg, "cloudpickle")


def _num_threads() -> int:
    """Return the number of threads of this process, also those of C libraries on Linux."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()


@contextlib.contextmanager
def _limited_threads(threads: Mapping[str, str]) -> Iterator[None]:
    """Set the variables that limit the threads of ranks, which read them while they import."""
    before = {variable: os.environ.get(variable) for variable in threads}
    os.environ.update(threads)
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value


@contextlib.contextmanager
def _hidden_script() -> Iterator[None]:
    """Keep `multiprocessing` from importing a script that is not a file, such as "<stdin>"."""
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None)
    if script is None or os.path.isfile(script):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = script


class _Rank:
    """A started process, and the pipe through which it sends what its function returned."""

    def __init__(
        self, context: Any, call: Any, job: LocalJob, threads: Mapping[str, str], copies: bool
    ) -> None:
        self.job = job
        self.has_started = False
        self.code: int | None = None  # once the function has ended without an error
        self.outcome: Connection
        self.outcome, sender = context.Pipe(duplex=False)
        run = (call, job, threads, sender, copies)
        self._process = context.Process(target=_run, args=run, name=f"rank {job.rank}")
        self._process.start()
        # Only the process holds the other end, also if later ones are forked, so that its death
        # ends the pipe.
        sender.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def receive(self) -> tuple[Any] | None:
        """Return what the function returned, in a tuple; None if it has not returned yet."""
        code = self.poll()  # What the process has sent before its end is in the pipe now.
        try:
            if not self.outcome.poll():
                if code is None:
                    return None
                raise EOFError
            received = self.outcome.recv()
        except EOFError:
            if code is None:
                self._process.join(_END_SECONDS)
                code = self.poll()
            end = "closed its pipe" if code is None else local_ranks.exit_text(code)
            raise self.failure(f"its process {end}{self._explanation()}") from None
        if received == _STARTED:
            self.has_started = True
            return None
        if isinstance(received, int):
            self.code = received
            return (None,)
        if len(received) == 1:
            self.code = 0
            return (received[0],)
        raise self.failure(*received)

    def end_code(self) -> int:
        """Return the exit code of the rank, whose process has ended; say why if it has failed."""
        try:
            while self.code is None:
                self.receive()
        except _FailedRankError as error:
            code = self.poll()
            if code != -signal.SIGTERM:
                sys.stderr.write(f"{error}\n")
            return code or 1
        return self.code

    def _explanation(self) -> str:
        if self.has_started:
            return ""
        return (
            " before it called the function: it has printed why. A script calls mv.spawn below "
            'if __name__ == "__main__":'
        )

    def failure(
        self, error: str, began: float | None = None, cause: int | None = None, kind: str = ""
    ) -> "_FailedRankError":
        msg = f"rank {self.job.rank} of {self.job.size} failed: {error}"
        time_ = time.monotonic() if began is None else began
        name, rank = f"rank {self.job.rank}", self.job.rank
        return _FailedRankError(msg, Failure(name, self.poll() or 1, time_, rank, cause, kind))

    def await_end(self) -> None:
        self._process.join(_END_SECONDS)

    def close(self) -> None:
        self.outcome.close()
        self._process.join(_END_SECONDS)


class _FailedRankError(Exception):
    """The error of a rank, and what is known about its cause."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


def _collect(ranks: Sequence[_Rank], end: float | None) -> list[Any]:
    values: dict[int, Any] = {}
    waiting = list(ranks)
    start_end = time.monotonic() + _START_SECONDS
    while waiting:
        wait([rank.outcome for rank in waiting], _INTERVAL)
        for rank in tuple(waiting):
            try:
                value = rank.receive()
                if value is None and not rank.has_started and time.monotonic() > start_end:
                    raise rank.failure(f"its process did not begin within {_START_SECONDS:g} s")
            except _FailedRankError as failed:
                waiting.remove(rank)
                first = _first_error(failed, waiting)
                for other in waiting:  # Before they are ended, so that readers know the cause.
                    if other.poll() is None:
                        processes.note_loss(other.pid, first.rank)
                raise first from None
            if value is not None:
                waiting.remove(rank)
                values[rank.job.rank] = value[0]
        if end is not None and time.monotonic() > end and waiting:
            late = [rank.job.rank for rank in waiting]
            msg = (
                f"spawn: expected all ranks to end within the timeout, but these still run: {late}"
            )
            error = OperationTimeout(msg)
            error.rank = late[0]
            raise error
    return [values[rank.job.rank] for rank in ranks]


def _first_error(error: _FailedRankError, waiting: Sequence[_Rank]) -> RankError:
    """Return the error of the rank that failed first by itself, given the first that is known."""
    errors = [error]
    waiting = list(waiting)
    end = time.monotonic() + _CAUSE_SECONDS
    while waiting and time.monotonic() < end:
        if any(each.failure.cause is None for each in errors):
            end = 0.0  # This is the last look, at ranks that have failed at the same time.
        wait([rank.outcome for rank in waiting], _INTERVAL)
        for rank in tuple(waiting):
            try:
                if rank.receive() is not None:
                    waiting.remove(rank)
            except _FailedRankError as other:
                waiting.remove(rank)
                errors.append(other)
    first = first_cause([each.failure for each in errors])
    shown = next(each for each in errors if each.failure is first)
    others = consequences(each.failure.error for each in errors if each is not shown)
    message = f"{shown.args[0]}\n{others}" if others else str(shown.args[0])
    assert first.rank is not None
    return RankError(message, rank=first.rank)


def _value_of(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return what the function returns, or None if it ends the process with exit code 0."""
    try:
        return function(*args)
    except SystemExit as end:
        if end.code in (None, 0):
            return None
        raise


def _run(call: Any, job: LocalJob, threads: Mapping[str, str], sender: Any, copies: bool) -> None:
    """Run the function as a rank, and send its result or its error. This runs in the process."""
    guard.end_with_parent(signal.SIGKILL)
    if signal.getsignal(signal.SIGTERM) is _exit_at_sigterm:  # A forked process has it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():  # It may have ended before the line above.
        return
    sender.send(_STARTED)
    function, args = call.value if isinstance(call, Copied) else call
    # The process of a fork server has not inherited the environment of the caller.
    variables = local_ranks.environment({**threads, **job.variables()})
    os.environ.clear()
    os.environ.update(variables)
    if hasattr(sys.stdout, "reconfigure"):
        # A notebook shows each line when it arrives, and lines of several ranks are not mixed, also
        # with PYTHONUNBUFFERED.
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    try:
        if _session.is_open():
            raise StateError(
                "expected no open session before the function is called: the script has opened one "
                'while the process imported it, so call mv.init() below if __name__ == "__main__":'
            )
        value = _value_of(function, args)
        session = _session.find()
        if session is not None:
            session.close()
        sender.send_bytes(Copied((value,), copies).dumps())
    except EndOfJob as end:
        sender.send(notice.code_of(end))
    except BaseException as error:
        began, lost = time.monotonic(), reports.loss()
        session = _session.find()
        left = leaving.after_failure(session, error)
        if left is not None:
            traceback.print_exc()
            sender.send(notice.code_of(left))
            return
        if session is not None and not session.closed:
            session.leave_with(f"its function failed: {describe(error)}")
        cause, kind = (None, type(error).__name__) if lost is None else lost
        kind = kind if cause is None else f"{kind} of rank {cause}"
        sender.send((f"{describe(error)}\n{traceback.format_exc()}", began, cause, kind))
