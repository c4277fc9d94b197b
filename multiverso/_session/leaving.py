"""SIGTERM as a notice: a rank that receives it leaves at the end of a step, not at once."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_int32, c_int64
from typing import TYPE_CHECKING, Any, Final

from multiverso._native import arguments, capi
from multiverso._native.library import checked
from multiverso.errors import StateError

if TYPE_CHECKING:
    from multiverso._session.session import Session

_log = logging.getLogger("multiverso")

#: Seconds in which another SIGTERM belongs to the same notice: Slurm signals all processes of a
#: job, and a launcher that it signals passes the signal to them.
_SAME_NOTICE: Final = 1.0


class EndOfJob(SystemExit):  # noqa: N818
    """Ends a rank whose job was told to end, after all ranks have left together."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)  # as shells report SIGTERM


class _Notice:
    """Whether SIGTERM is a notice to this process, and since when it has had one.

    Attributes
    ----------
    listens : bool
        Whether SIGTERM is a notice now. That ends with the session, but not when the ranks have
        left together: a launcher may send SIGTERM to those that still run when the first has ended.
    left : bool
        Whether the ranks have agreed to leave together.
    since : float or None
        When the notice arrived, in seconds of `time.monotonic`.
    earlier : callable, signal.Handlers or None
        The handler before `listen`; None if it was not one of Python's.

    """

    listens = False
    left = False
    since: float | None = None
    earlier: Callable[[int, Any], Any] | int | None = None


_notice: Final = _Notice()
#: While a thread forks, the signals that it had blocked before, as `mask`.
_forking: Final = threading.local()


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
    _notice.left = False
    _notice.listens = True


def stop_listening() -> None:
    """Restore the earlier handler; in a thread that cannot, SIGTERM is passed on to it."""
    if _notice.left:
        return
    _notice.listens = False
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is _receive:
        signal.signal(signal.SIGTERM, _earlier_handler())


def is_leaving(session: Session) -> bool:
    """Return whether the ranks of a session are to leave; see `multiverso.is_leaving`."""
    was_told = _notice.since is not None
    if session.options.on_term != "leave":
        return False
    if session.options.elastic:
        return was_told
    known = c_int32()
    checked.MV_SessionLeaving(session.handle, was_told, byref(known))
    return bool(known)


def check(session: Session, step: int | None, before: Callable[[], object] | None) -> None:
    """End this rank if it is to leave; see `multiverso.check_leaving`."""
    if session.options.on_term != "leave" or session.closed:
        return
    smallest = c_int64(-1 if step is None else arguments.integer(step, "step", 0, bits=62))
    told = is_leaving(session)
    if session.options.elastic:
        if told:
            if before is not None:
                before()
            session.leave()
            raise SystemExit(0)
    elif told or session.options.mode == capi.MV_MODE_SYNC:
        # In sync mode nobody can ask alone: the others would wait in the next round.
        agreed = c_int32()
        checked.MV_SessionAgreeToLeave(session.handle, byref(smallest), byref(agreed))
        if agreed:
            _leave_together(session, None if smallest.value < 0 else smallest.value, before)


def _leave_together(
    session: Session, step: int | None, before: Callable[[], object] | None
) -> None:
    _notice.left = True
    if before is not None:
        before()
    folder = session.options.checkpoints
    if folder is not None:
        session.save(folder, step, None, False, False)
    if session.is_master_worker():
        saved = f"saved in {folder}" if folder is not None else "mv.init had no checkpoints="
        _log.warning("the job was told to end by SIGTERM, and ends: %s", saved)
    session.close()
    raise EndOfJob


def _earlier_handler() -> Callable[[int, Any], Any] | int:
    return signal.SIG_DFL if _notice.earlier is None else _notice.earlier


def _receive(number: int, frame: Any) -> None:
    now = time.monotonic()
    if _notice.listens and _notice.since is None:
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
    _notice.left = False
    stop_listening()
    _release_signal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_signal, after_in_parent=_release_signal, after_in_child=_restore_in_child
    )
