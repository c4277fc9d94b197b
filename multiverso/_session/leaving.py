"""SIGTERM as a notice: a rank that receives it leaves at the end of a step, not at once.

A program need not reach the end of a step. Batch systems send the signal to all processes of a job,
also to those that load data, and without these the program of a rank fails, or waits for ever. So
a rank whose program fails after a notice meets the others for the same save. They may be in other
calls: rounds go on without this rank, which has finished its own, and other collective calls fail,
so that these ranks come to the save by the same way (`after_failure`). If the program waits, it
gets an exception after half of the time that the rank has to end (`_watch`).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_int32, c_int64
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod, ref

from multiverso._local import guard
from multiverso._native import arguments, capi, library
from multiverso._native.exception_text import describe
from multiverso._native.library import checked
from multiverso._native.reports import report_saved
from multiverso.errors import AbortedError, MultiversoError, StateError

if TYPE_CHECKING:
    from multiverso._session.session import Session

_log = logging.getLogger("multiverso")

#: Seconds in which another SIGTERM belongs to the same notice: Slurm signals all processes of a
#: job, and a launcher that it signals passes the signal to them.
_SAME_NOTICE: Final = 1.0
#: Seconds in which the notice follows that has already ended a process of the program.
_FOLLOWING_NOTICE: Final = 0.25
#: When a program that has not ended gets an exception, and when its process ends in any case, in
#: parts of the time that it has. It gets several, since the ends of its blocks may wait again.
_INTERRUPTS: Final = (0.5, 0.6, 0.7, 0.8)
_LAST_END: Final = 0.9
#: The outermost functions of a program.
_OUTERMOST: Final = ("<module>", "_run_module_as_main")
#: Seconds between two questions to the other workers of an elastic session.
_INTERVAL: Final = 0.05
_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


class EndOfJob(SystemExit):  # noqa: N818
    """Ends a process that leaves its job: with 143, or with 0 in an elastic session.

    If nothing has been saved, the code is 1.
    """


class LateNotice(BaseException):  # noqa: N818
    """Ends a program that has not left within half of its time, for instance since it waits.

    It is no Exception, so that the program does not catch it by chance.
    """


#: The name of the companions that a session closes before it ends.
CLOSED_FIRST: Final = "closed first"
#: The exit code of a job that was told to end, as shells report SIGTERM.
TOLD_TO_END: Final = 128 + signal.SIGTERM
#: The exit code of a rank that ends because of SIGTERM, and has saved nothing.
_LOST: Final = 1


class _Notice:
    """Whether SIGTERM is a notice to this process, and since when it has had one.

    Attributes
    ----------
    listens : bool
        Whether SIGTERM is a notice now, which ends with the session.
    since : float or None
        When the notice arrived, in seconds of `time.monotonic`.
    tables : sequence
        The tables of the session when the notice arrived, which would otherwise be freed with the
        variables of the program before the interpreter exits.
    end : BaseException or None
        What the main thread is to raise at the next SIGTERM: another thread has left, or the
        program does not end.
    is_busy : bool
        Whether this rank meets the others, or saves with them, which nothing is to interrupt.
    is_saving : bool
        Whether all ranks have agreed to leave. SIGTERM then has no effect.
    ends, has_saved : bool
        Whether this process ends because of the notice, and whether it has saved because of it.
        SIGTERM then has no effect: when the first of the ranks that have left together ends, a
        launcher may send it to those that still run.
    is_over : bool
        Whether the program has ended, so that only its process remains to end.
    raised : callable
        A weak reference to the exception that ends the program, which exists until it has ended.
    code : int or None
        The exit code of this process, once the session has ended because of the notice.
    session : Session or None
        The last session that has listened.
    hook : callable or None
        The hook for uncaught exceptions before `listen`.
    earlier : callable, signal.Handlers or None
        The handler before `listen`; None if it was not one of Python's.

    """

    listens = False
    since: float | None = None
    end: BaseException | None = None
    tables: Sequence[object] = ()
    is_busy = is_saving = ends = has_saved = is_over = False
    raised: Callable[[], object] = staticmethod(lambda: None)
    code: int | None = None
    session: Session | None = None
    hook: _Hook | None = None
    earlier: Callable[[int, Any], Any] | int | None = None


_notice: Final = _Notice()
#: While a thread forks, the signals that it had blocked before, as `mask`.
_forking: Final = threading.local()


class Departure:
    """What a session knows about its end at SIGTERM.

    Attributes
    ----------
    last_step : int or None
        The last step that the program has passed to `check_leaving`.
    is_checked : bool
        Whether the program calls `check_leaving` itself.
    is_agreed : bool
        Whether all ranks have agreed to leave.
    has_failed : bool
        Whether the save or what precedes it has failed, so that it is not tried again.
    before : callable or None
        The last function that the program has passed to `check_leaving`.
    last_calls : list of WeakMethod
        What adapters do before this rank leaves: they add the deltas since their last syncs.

    """

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.is_checked = self.is_agreed = self.has_failed = False
        self.before: Callable[[], object] | None = None
        self.last_calls: list[WeakMethod[Callable[[], None]]] = []

    def add_last_call(self, call: Callable[[], None]) -> None:
        """Let a method be called before this rank leaves, as long as its object lives."""
        self.last_calls[:] = [each for each in self.last_calls if each() is not None]
        self.last_calls.append(WeakMethod(call))

    def make_last_calls(self) -> None:
        """Do what adapters do before this rank leaves."""
        for reference in self.last_calls:
            if (call := reference()) is not None:
                call()


def listen(session: Session) -> None:
    """Let SIGTERM be a notice to a session from now on.

    Raises
    ------
    StateError
        Outside the main thread, where Python accepts no handlers of signals.

    """
    if threading.current_thread() is not threading.main_thread():
        msg = (
            "on_term='leave': expected mv.init in the main thread, where Python accepts handlers "
            f"of signals, received it in thread {threading.current_thread().name!r}"
        )
        raise StateError(msg)
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not _receive:
        _notice.earlier = handler
        signal.signal(signal.SIGTERM, _receive)
        atexit.unregister(_ignore_at_exit)
        atexit.register(_ignore_at_exit)
    if sys.excepthook is not _end_by_exception:
        _notice.hook, sys.excepthook = sys.excepthook, _end_by_exception
    _notice.since = _notice.code = None
    _notice.is_busy = _notice.is_saving = False
    _notice.ends = _notice.has_saved = _notice.is_over = False
    _notice.session, _notice.listens = session, True
    library.let_wait(_may_wait)


def stop_listening() -> None:
    """Restore the earlier handler; in a thread that cannot, SIGTERM is passed on to it.

    A process that ends because of the notice keeps the handler, which then has no effect.
    """
    _notice.listens = _notice.is_saving = False
    _notice.tables = ()
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and not _notice.ends and signal.getsignal(signal.SIGTERM) is _receive:
        signal.signal(signal.SIGTERM, _earlier_handler())


def _ignore_at_exit() -> None:
    # Python resets its own handlers when it exits, but does not change this.
    if _notice.ends and signal.getsignal(signal.SIGTERM) is _receive:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _is_ending() -> bool:
    """Return whether this process ends, rather than having caught the exception that ends it."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    # While the interpreter exits, other functions run there: those of threading and of atexit.
    has_ended = frame is None or frame.f_code.co_name not in _OUTERMOST
    return has_ended or _notice.is_over or _notice.raised() is not None


def note_end() -> None:
    """Let the process end in time, since its program has ended by a notice."""
    _notice.is_over = True


def forget() -> None:
    """Let SIGTERM do what it did before, also after ranks have left together."""
    _notice.ends = _notice.is_over = False
    _notice.since = _notice.end = _notice.code = None
    stop_listening()


def is_leaving(session: Session) -> bool:
    """Return whether the ranks of a session are to leave; see `multiverso.is_leaving`."""
    if session.options.on_term != "leave":
        return False
    was_told = _notice.since is not None
    return was_told if session.options.elastic else bool(_outcome(session, was_told))


def _outcome(session: Session, was_told: bool) -> int:
    outcome = c_int32()
    checked.MV_SessionLeaving(session.handle, was_told, byref(outcome))
    return outcome.value


def check(session: Session, step: int | None, before: Callable[[], object] | None) -> None:
    """End this rank if it is to leave; see `multiverso.check_leaving`."""
    if step is not None:
        step = arguments.integer(step, "step", 0, bits=62)
    departure = session.departure
    departure.is_checked, departure.last_step, departure.before = True, step, before
    _check(session, before)


def check_after_sync(session: Session) -> None:
    """Do the same for an adapter, unless the program itself does."""
    if not session.departure.is_checked:
        _check(session, None)


def check_between_items(session: Session) -> None:
    """Do the same for `multiverso.Work`, with the last step of the program if there is one."""
    _check(session, None)


def _check(session: Session, before: Callable[[], object] | None) -> None:
    options = session.options
    if options.on_term != "leave" or session.closed:
        return
    if options.elastic:
        outcome = _outcome(session, _notice.since is not None)
        if outcome in (capi.MV_LEAVE_NOW, capi.MV_LEAVE_LAST):
            _end_process(_leave_elastic(session, outcome == capi.MV_LEAVE_LAST, before))
    # In sync mode nobody can ask alone: the others would wait in the next round.
    elif is_leaving(session) or options.mode == capi.MV_MODE_SYNC:
        outcome, step = _agree(session, capi.MV_AT_STEP)
        if outcome == capi.MV_LEAVE_NOW:
            _end_process(_leave_together(session, step, before))


def _agree(session: Session, when: int) -> tuple[int, int | None]:
    """Ask all ranks; return the outcome, and the smallest step of those that train."""
    last = session.departure.last_step
    step = c_int64(-1 if last is None else last)
    outcome = c_int32()
    try:
        checked.MV_SessionAgreeToLeave(session.handle, when, byref(step), byref(outcome))
    except BaseException:
        # An exception has waited for the end of the call. The other ranks leave now.
        if outcome.value != capi.MV_LEAVE_NOW:
            raise
    return outcome.value, None if step.value < 0 else step.value


def _leave_together(
    session: Session,
    step: int | None,
    before: Callable[[], object] | None,
    makes_last_calls: bool = True,
) -> int:
    """Save and close the session with all ranks; return the exit code."""
    with _saving(session):
        if makes_last_calls:
            session.departure.make_last_calls()
        if before is not None:
            before()
        has_saved = _save(session, step, before)
        session.departure.is_agreed = _notice.ends = True
        _notice.code = TOLD_TO_END if has_saved else _LOST
        session.close()
    return _notice.code


def _leave_elastic(session: Session, is_last: bool, before: Callable[[], object] | None) -> int:
    """Leave alone; return the exit code."""
    has_saved = True
    with _saving(session):
        session.departure.make_last_calls()
        if before is not None:
            before()
        if is_last:
            has_saved = _save(session, session.departure.last_step, before)
        _notice.code = 0 if has_saved else _LOST
        _notice.ends = True
        if is_last:
            session.close()
        else:
            session.leave()
    return _notice.code


@contextlib.contextmanager
def _saving(session: Session) -> Iterator[None]:
    """Let neither SIGTERM nor the end of a child process end the block by an exception."""
    _notice.is_busy = _notice.is_saving = True
    restore = contextlib.ExitStack()
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD"):
        # A handler may raise an exception when a process ends, as that of PyTorch does.
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        restore.callback(signal.signal, signal.SIGCHLD, handler or signal.SIG_DFL)
    try:
        yield
    except AbortedError:  # Another rank has failed at this moment; the ranks meet again.
        raise
    except BaseException:
        session.departure.has_failed = True
        raise
    finally:
        _notice.is_busy = _notice.is_saving = False
        restore.close()


def _save(session: Session, step: int | None, before: object) -> bool:
    """Save the tables; return whether this, or `before`, has saved anything."""
    folder = session.options.checkpoints
    if folder is not None:
        session.save(folder, step, None, False, False)
    if session.is_master_worker():
        lost = "lost: mv.init had no checkpoints=" if before is None else "left to before="
        saved = f"saved in {folder}" if folder is not None else lost
        _log.warning("the job ends because of SIGTERM; its tables are %s", saved)
    _notice.has_saved = folder is not None or before is not None
    if _notice.has_saved:
        report_saved()
    return _notice.has_saved


def may_save(session: Session | None, error: BaseException | None) -> bool:
    """Return whether a notice may have ended the program, and its tables have been or can be saved.

    Parameters
    ----------
    session : Session or None
        The session of the program, or None if it has ended.
    error : BaseException or None
        What has ended the program.

    """
    if isinstance(error, KeyboardInterrupt | EndOfJob):
        return False
    if session is None or session.closed:
        return _notice.code not in (None, _LOST)
    departure, options = session.departure, session.options
    if not _notice.listens or session.forked or departure.has_failed or departure.is_agreed:
        return False
    return (options.checkpoints is not None or departure.before is not None) and _await_notice(
        session
    )


def after_failure(session: Session | None, error: BaseException | None) -> EndOfJob | None:
    """Save together with the other ranks if the program of this one has failed after a notice.

    Returns
    -------
    EndOfJob or None
        How the process is to end, since the session has ended with a save; None if it has not.

    """
    if not may_save(session, error):
        return None
    if session is not None and not session.closed:
        try:
            _leave_after_failure(session)
        except Exception as failure:
            _log.error("after SIGTERM, the tables could not be saved: %s", describe(failure))
            return None
    _notice.ends = True
    return None if _notice.code in (None, _LOST) else _end_with(_notice.code)


def after_exit(session: Session, error: BaseException | None) -> bool:
    """Do the same while the interpreter exits, if the tables still exist; return whether it has."""
    return bool(_notice.tables) and after_failure(session, error) is not None


def _await_notice(session: Session) -> bool:
    """Return whether there is a notice, or one follows that has already reached a child."""
    deadline = time.monotonic() + _FOLLOWING_NOTICE
    while not is_leaving(session) and _notice.since is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_INTERVAL)
    return True


def _leave_after_failure(session: Session) -> int:
    departure = session.departure
    if _notice.since is None:  # Another rank has received the signal.
        _begin()
    _notice.is_busy = True
    try:
        if session.options.elastic:
            while (outcome := _outcome(session, True)) == capi.MV_LEAVE_NOT_NOW:
                time.sleep(_INTERVAL)
            return _leave_elastic(session, outcome == capi.MV_LEAVE_LAST, departure.before)
        is_leaving(session)  # The others get to know of the notice.
        has_rounds = session.options.mode == capi.MV_MODE_SYNC
        if has_rounds:  # Others may wait in one.
            checked.MV_SessionFinish(session.handle)
        outcome = capi.MV_LEAVE_OTHER_CALL
        while outcome != capi.MV_LEAVE_NOW:
            outcome, step = _agree(session, capi.MV_AT_FAILURE)
        return _leave_together(session, step, departure.before, makes_last_calls=not has_rounds)
    finally:
        _notice.is_busy = False


def close(session: Session) -> None:
    """Close a session with all ranks, and save before with those that leave it meanwhile."""
    with contextlib.ExitStack() as companions:  # One that fails does not keep others from closing.
        for companion in session.companions.get(CLOSED_FIRST, []):
            companions.callback(companion.close)
    failure: MultiversoError | None = None
    together = session.options.on_term == "leave" and not session.options.elastic
    if together and not session.departure.is_agreed:
        # The call may stand in a `finally` block that an exception has entered.
        in_flight = sys.exc_info()[1]
        if in_flight is not None and after_failure(session, in_flight) is not None:
            return
        try:
            _await_close(session)
        except MultiversoError as error:
            failure = error
    checked.MV_SessionClose(session.handle)
    # The close of a session that is known to be aborted waits for nobody, and succeeds.
    if failure is not None and not isinstance(failure, AbortedError):
        raise failure


def _await_close(session: Session) -> None:
    while True:
        is_leaving(session)  # The others get to know of a notice that this rank has received.
        outcome, step = _agree(session, capi.MV_AT_CLOSE)
        if outcome == capi.MV_LEAVE_NOW:
            with _saving(session):
                _save(session, step, None)
        if outcome != capi.MV_LEAVE_NOT_NOW:
            return


def program_hook() -> _Hook:
    """Return the hook for uncaught exceptions of the program, without that of this module."""
    hook = sys.excepthook if sys.excepthook is not _end_by_exception else _notice.hook
    return hook or sys.__excepthook__


def _end_by_exception(
    kind: type[BaseException], error: BaseException, frames: TracebackType | None
) -> None:
    """Print an exception that ends the program, and save if a notice has caused its end."""
    program_hook()(kind, error, frames)
    end = after_failure(_notice.session, error)
    if end is not None:
        raise end


def _may_wait(error: BaseException, seconds: float) -> bool:
    """Let the exceptions that a notice causes wait for the end of calls that others take part in.

    An interrupted call would end the session, and nothing could be saved.
    """
    if not _notice.listens or isinstance(error, KeyboardInterrupt | EndOfJob):
        return False
    return _notice.since is not None or seconds < _FOLLOWING_NOTICE


def _grace() -> float:
    """Return how many seconds this rank has after the notice."""
    try:
        return float(os.environ[guard.GRACE_VARIABLE])
    except (KeyError, ValueError):
        return guard.GRACE


def _begin() -> None:
    """Note that there is a notice."""
    _notice.since = time.monotonic()
    if _notice.session is not None:
        _notice.tables = [table() for table, _ in list(_notice.session.created.values())]
    # Not a Thread, since a handler of a signal may interrupt the start of another one.
    start_new_thread(_watch, (_notice.since, _grace()))


def _watch(since: float, grace: float) -> None:
    """See to it that this process ends in time, also if its program waits for ever."""
    for part in _INTERRUPTS:
        time.sleep(max(0.0, since + part * grace - time.monotonic()))
        if _notice.since != since or not _notice.listens:
            break
        if not _notice.is_busy and signal.getsignal(signal.SIGTERM) is _receive:
            text = f"the program has not called check_leaving for {part * grace:g} s after SIGTERM"
            _notice.end = LateNotice(text)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(max(0.0, since + _LAST_END * grace - time.monotonic()))
    # A program that has shut down its session, or has caught the exception, may go on.
    is_open = _notice.listens and not _notice.is_saving
    if _notice.since == since and (is_open or _is_ending()):
        _exit_now(f"{_LAST_END * grace:g} s after SIGTERM, this process ends at once")


def _exit_now(why: str) -> None:
    code = _LOST if _notice.code is None else _notice.code
    saved = "saved" if code == TOLD_TO_END else "not saved"
    with contextlib.suppress(OSError):
        os.write(2, f"multiverso: {why}; its tables are {saved}\n".encode())
    os._exit(code)


def ignore_notice(_worker: int = 0) -> None:
    """Let this process, which a rank has started, survive the notice that ends its job.

    Batch systems send SIGTERM to all processes of a job. The ranks then save
    (``mv.init(on_term="leave")``), and may need the processes that load their data until they do.
    After this call SIGTERM ends the process only if the one that has started it sends the signal,
    or has ended. So ``Process.terminate()``, ``Pool.terminate()`` and the end of a ``DataLoader``
    do what they did before.

    A process that is forked from a rank makes the call by itself. It needs another one only if it
    sets a handler of SIGTERM, as the processes of PyTorch's ``DataLoader`` do.

    Parameters
    ----------
    _worker : int, optional
        What a ``DataLoader`` passes; not used.

    Raises
    ------
    StateError
        In a rank with ``on_term="leave"``, for which SIGTERM is a notice.

    Examples
    --------
    >>> import multiprocessing
    >>> import multiverso as mv
    >>> with multiprocessing.get_context("spawn").Pool(1, initializer=mv.ignore_notice) as pool:
    ...     pool.map(abs, [-1, -2])
    [1, 2]

    """
    if _notice.listens:
        msg = "ignore_notice: expected a process that a rank has started, received a rank"
        raise StateError(msg)
    parent = multiprocessing.parent_process()
    pid = os.getppid() if parent is None else parent.pid
    checked.MV_IgnoreNotice(pid)


def code_of(end: EndOfJob) -> int:
    """Return the exit code of a job of which this rank is the last one that has left it."""
    note_end()
    return TOLD_TO_END if _notice.has_saved else int(end.code or 0)


def _end_with(code: int) -> EndOfJob:
    end = EndOfJob(code)
    _notice.raised = ref(end)
    return end


def _end_process(code: int) -> None:
    if threading.current_thread() is threading.main_thread():
        raise _end_with(code)
    # The main thread, which may wait for this one, raises the error when it runs again.
    _notice.end = _end_with(code)
    if signal.getsignal(signal.SIGTERM) is _receive:
        signal.raise_signal(signal.SIGTERM)
    raise SystemExit(code)


def _earlier_handler() -> Callable[[int, Any], Any] | int:
    return signal.SIG_DFL if _notice.earlier is None else _notice.earlier


def _receive(number: int, frame: Any) -> None:
    if _notice.end is not None:
        end, _notice.end = _notice.end, None
        try:
            raise end
        finally:
            del end  # Without a circle through this frame, it is freed when the program catches it.
    now = time.monotonic()
    if _notice.is_saving or _notice.is_busy:
        return
    if _notice.ends:
        if not _is_ending():
            forget()  # The program goes on, so the next signal does what it did before.
        return
    if _notice.listens and _notice.since is None:
        _begin()
        if callable(_notice.earlier):
            _notice.earlier(number, frame)
    elif not _notice.listens or now > (_notice.since or 0) + _SAME_NOTICE:
        _pass_on(number, frame)


def _pass_on(number: int, frame: Any) -> None:
    """Do what the signal did before; but end a rank with another code than after a save."""
    handler = _earlier_handler()
    if callable(handler):
        handler(number, frame)
    elif handler == signal.SIG_DFL:
        if _notice.listens:
            _exit_now("a second SIGTERM ends this process at once")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


# A forked process, such as one that loads data, is to end when its parent sends it SIGTERM, but not
# by the notice. The signal has to wait until the process has restored the handler, because Python
# would forget it.
def _hold_signal() -> None:
    if _notice.listens:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _release_signal() -> None:
    mask = vars(_forking).pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _restore_in_child() -> None:
    listened = _notice.listens
    forget()
    if listened:
        checked.MV_IgnoreNotice(os.getppid())
    _release_signal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_signal, after_in_parent=_release_signal, after_in_child=_restore_in_child
    )
