"""SIGTERM as a notice: a rank that receives it leaves at the end of a step, not at once."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from multiverso.errors import StateError

#: Seconds in which another SIGTERM belongs to the same notice: Slurm signals all processes of a
#: job, and a launcher that it signals passes the signal to them.
_SAME_NOTICE: Final = 1.0


class EndOfJob(SystemExit):  # noqa: N818
    """Ends a rank whose job was told to end, after all ranks have left together."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)  # as shells report SIGTERM


class _Notice:
    """Whether this process listens to SIGTERM, since when it has had a notice, and who came first.

    Attributes
    ----------
    listens : bool
        Whether SIGTERM is a notice now.
    since : float or None
        When the notice arrived, in seconds of `time.monotonic`.
    earlier : callable, signal.Handlers or None
        The handler before `listen`; None if it was not one of Python's.

    """

    listens = False
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
    _notice.listens = True


def stop_listening() -> None:
    """Restore the earlier handler; in a thread that cannot, SIGTERM is passed on to it."""
    _notice.listens = False
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is _receive:
        signal.signal(signal.SIGTERM, _earlier_handler())


def is_noticed() -> bool:
    """Return whether this process has received a notice."""
    return _notice.since is not None


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
    stop_listening()
    _release_signal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_signal, after_in_parent=_release_signal, after_in_child=_restore_in_child
    )
