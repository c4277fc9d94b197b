"""SIGTERM as a notice: a rank that receives it leaves at the end of a step, not at once."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_int32, c_int64
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod

from multiverso._native import arguments, capi
from multiverso._native.library import checked
from multiverso.errors import AbortedError, MultiversoError, StateError

if TYPE_CHECKING:
    from multiverso._session.session import Session

_log = logging.getLogger("multiverso")

#: Seconds in which another SIGTERM belongs to the same notice: Slurm signals all processes of a
#: job, and a launcher that it signals passes the signal to them.
_SAME_NOTICE: Final = 1.0


class EndOfJob(SystemExit):  # noqa: N818
    """Ends a process that leaves its job: with 143, or with 0 in an elastic session."""


#: The name of the companions that a session closes before it ends.
CLOSED_FIRST: Final = "closed first"
#: The exit code of a job that was told to end, as shells report SIGTERM.
TOLD_TO_END: Final = 128 + signal.SIGTERM


class _Notice:
    """Whether SIGTERM is a notice to this process, and since when it has had one.

    Attributes
    ----------
    listens : bool
        Whether SIGTERM is a notice now, which ends with the session.
    since : float or None
        When the notice arrived, in seconds of `time.monotonic`.
    spares : bool
        Whether the next SIGTERM has no effect. When the first of the ranks that have left together
        ends, a launcher may send it to those that still run.
    end : EndOfJob or None
        What the main thread is to raise at the next SIGTERM, since another thread has left.
    earlier : callable, signal.Handlers or None
        The handler before `listen`; None if it was not one of Python's.

    """

    listens = False
    since: float | None = None
    spares = False
    end: EndOfJob | None = None
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
    last_calls : list of WeakMethod
        What adapters do before this rank leaves: they add the deltas since their last syncs.

    """

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.is_checked = self.is_agreed = False
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


def listen() -> None:
    """Let SIGTERM be a notice from now on.

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
    _notice.since = None
    _notice.spares = False
    _notice.listens = True


def stop_listening() -> None:
    """Restore the earlier handler; in a thread that cannot, SIGTERM is passed on to it."""
    _notice.listens = False
    if _notice.spares:
        return
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is _receive:
        signal.signal(signal.SIGTERM, _earlier_handler())


def forget() -> None:
    """Let SIGTERM do what it did before, also after ranks have left together."""
    _notice.spares, _notice.end = False, None
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
    session.departure.is_checked, session.departure.last_step = True, step
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
            _leave_elastic(session, outcome == capi.MV_LEAVE_LAST, before)
    # In sync mode nobody can ask alone: the others would wait in the next round.
    elif is_leaving(session) or options.mode == capi.MV_MODE_SYNC:
        outcome, step = _agree(session, closing=False)
        if outcome == capi.MV_LEAVE_NOW:
            _leave_together(session, step, before)


def _agree(session: Session, closing: bool) -> tuple[int, int | None]:
    """Ask all ranks; return the outcome, and the smallest step of those that train."""
    last = session.departure.last_step
    step = c_int64(-1 if last is None else last)
    outcome = c_int32()
    checked.MV_SessionAgreeToLeave(session.handle, closing, byref(step), byref(outcome))
    return outcome.value, None if step.value < 0 else step.value


def _leave_together(
    session: Session, step: int | None, before: Callable[[], object] | None
) -> None:
    session.departure.make_last_calls()
    if before is not None:
        before()
    _save(session, step)
    session.departure.is_agreed = _notice.spares = True
    session.close()
    _end_process(TOLD_TO_END)


def _leave_elastic(session: Session, is_last: bool, before: Callable[[], object] | None) -> None:
    session.departure.make_last_calls()
    if before is not None:
        before()
    if is_last:
        _save(session, session.departure.last_step)
        session.close()
    else:
        session.leave()
    _end_process(0)


def _save(session: Session, step: int | None) -> None:
    folder = session.options.checkpoints
    if folder is not None:
        session.save(folder, step, None, False, False)
    if session.is_master_worker():
        saved = f"saved in {folder}" if folder is not None else "lost: mv.init had no checkpoints="
        _log.warning("the job ends because of SIGTERM; its tables are %s", saved)


def close(session: Session) -> None:
    """Close a session with all ranks, and save before with those that leave it meanwhile."""
    with contextlib.ExitStack() as companions:  # One that fails does not keep others from closing.
        for companion in session.companions.get(CLOSED_FIRST, []):
            companions.callback(companion.close)
    failure: MultiversoError | None = None
    together = session.options.on_term == "leave" and not session.options.elastic
    if together and not session.departure.is_agreed:
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
        outcome, step = _agree(session, closing=True)
        if outcome == capi.MV_LEAVE_NOW:
            _save(session, step)
        if outcome != capi.MV_LEAVE_NOT_NOW:
            return


def _end_process(code: int) -> None:
    if threading.current_thread() is threading.main_thread():
        raise EndOfJob(code)
    # The main thread, which may wait for this one, raises the error when it runs again.
    _notice.end = EndOfJob(code)
    if signal.getsignal(signal.SIGTERM) is _receive:
        signal.raise_signal(signal.SIGTERM)
    raise SystemExit(code)


def _earlier_handler() -> Callable[[int, Any], Any] | int:
    return signal.SIG_DFL if _notice.earlier is None else _notice.earlier


def _receive(number: int, frame: Any) -> None:
    if _notice.end is not None:
        end, _notice.end = _notice.end, None
        raise end
    now = time.monotonic()
    if _notice.spares:
        forget()
    elif _notice.listens and _notice.since is None:
        _notice.since = now
        if callable(_notice.earlier):
            _notice.earlier(number, frame)
    elif not _notice.listens or now > (_notice.since or 0) + _SAME_NOTICE:
        _pass_on(number, frame)


def _pass_on(number: int, frame: Any) -> None:
    """Do what the signal did before."""
    handler = _earlier_handler()
    if callable(handler):
        handler(number, frame)
    elif handler == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


# A forked process, such as one that loads data, is to end when its parent sends it SIGTERM. The
# signal has to wait until the process has restored the handler, because Python would forget it.
def _hold_signal() -> None:
    if _notice.listens:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _release_signal() -> None:
    mask = vars(_forking).pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _restore_in_child() -> None:
    forget()
    _release_signal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_signal, after_in_parent=_release_signal, after_in_child=_restore_in_child
    )
