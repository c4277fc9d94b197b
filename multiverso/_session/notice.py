"""SIGTERM as a notice: a rank that receives it leaves at the end of a step, not at once.

A program need not reach the end of a step. Batch systems send the signal to all processes of a job,
also to those that load data, and without these the program of a rank fails, or waits for ever. If
it waits, it gets an exception after half of the time that the rank has to end (`_watch`). What the
session does is in `leaving`.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Final
from weakref import ref

from multiverso._local import guard
from multiverso._native import library
from multiverso._native.library import checked
from multiverso._session.departure import Leaver
from multiverso.errors import StateError

#: Seconds in which another SIGTERM belongs to the same notice: Slurm signals all processes of a
#: job, and a launcher that it signals passes the signal to them, late on a crowded machine.
_SAME_NOTICE: Final = 5.0
#: Seconds in which the notice follows that has already ended a process of the program.
FOLLOWING_NOTICE: Final = 0.25
#: When a program that has not ended gets an exception, and when its process ends in any case, in
#: parts of the time that it has. It gets two, since the ends of its blocks may wait again.
_INTERRUPTS: Final = (0.5, 0.7)
_LAST_END: Final = 0.9
#: Seconds between two attempts to wake the main thread, and how many there are.
_WAKE_INTERVAL: Final = 0.1
_WAKES: Final = 10
#: The exit code of a rank that ends because of SIGTERM, and has saved nothing.
LOST: Final = 1


class EndOfJob(SystemExit):  # noqa: N818
    """Ends a process that leaves its job: 143 after a save, 0 if others save, else 1."""


class LateNotice(BaseException):  # noqa: N818
    """Ends a program that has not left in half of its time; no Exception, which it might catch."""


class _State:
    """Whether SIGTERM is a notice to this process, and what has followed from one."""

    #: The session to which SIGTERM is a notice now.
    session: Leaver | None = None
    #: The handler before `listen`; None if it was not one of Python's.
    earlier: Callable[[int, Any], Any] | int | None = None
    #: The outermost function of the program; None once the program has ended, so that only its
    #: process remains to end.
    program: CodeType | None = None
    #: When the notice arrived, in seconds of `time.monotonic`.
    since: float | None = None
    #: When this process last sent itself SIGTERM, to wake its main thread.
    woken = float("-inf")
    #: Where Python writes the number of each signal that this process receives, and the other end.
    wakeup: tuple[socket.socket, socket.socket] | None = None
    #: The tables of the session when the notice arrived, which would otherwise be freed with the
    #: variables of the program before the interpreter exits.
    tables: Sequence[object] = ()
    #: Whether this rank "meets" the others, or "saves" with them. SIGTERM then has no effect.
    phase = ""
    #: Whether this process has saved because of the notice.
    has_saved = False
    #: The exit code of this process, once the session has ended because of the notice. SIGTERM then
    #: has no effect until the process ends: when the first of the ranks that have left together
    #: ends, a launcher may send it to those that still run.
    code: int | None = None
    #: What the main thread is to raise at the next SIGTERM: another thread has left, or the program
    #: does not end.
    end: BaseException | None = None
    #: A weak reference to the exception that ends the program, which exists until it has ended.
    raised: Callable[[], object] = staticmethod(lambda: None)


state: Final = _State()
#: While a thread forks, the signals that it had blocked before, as `mask`.
_forking: Final = threading.local()


def listen(session: Leaver) -> None:
    """Let SIGTERM be a notice to a session from now on, which needs the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise StateError(
            "on_term='leave': expected mv.init in the main thread, where Python accepts handlers "
            f"of signals, received it in thread {threading.current_thread().name!r}"
        )
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not _receive:
        state.earlier = handler
        signal.signal(signal.SIGTERM, _receive)
        atexit.unregister(_ignore_at_exit)
        atexit.register(_ignore_at_exit)
    state.since = state.code = None
    state.phase, state.has_saved = "", False
    state.session, state.program = session, _outermost()
    _begin_waking()
    library.let_wait(_may_wait)


def stop_listening() -> None:
    """Restore the earlier handler; in a thread that cannot, SIGTERM is passed on to it."""
    state.session, state.tables = None, ()
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and state.code is None and signal.getsignal(signal.SIGTERM) is _receive:
        signal.signal(signal.SIGTERM, _earlier_handler())


def _begin_waking() -> None:
    """Have the main thread woken for a signal that arrives just before the thread blocks.

    Python calls handlers in the main thread only, and a thread that begins to wait for a lock after
    the signal has arrived waits on. If the program has a descriptor for this, as asyncio's event
    loop has, that wakes it.
    """
    if state.wakeup is not None:
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    if _replace_wakeup(-1, sender.fileno()):
        state.wakeup = sender, receiver
        start_new_thread(_wake, (receiver,))


def _replace_wakeup(own: int, descriptor: int) -> bool:
    """Let Python write signals to a descriptor, unless it writes them to the program's."""
    other = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    if other not in (-1, own):
        signal.set_wakeup_fd(other)
    return other in (-1, own)


def _wake(receiver: socket.socket) -> None:
    """Wake the main thread while it has not taken the number of a SIGTERM, as the handler does."""
    while True:
        tries = _WAKES if signal.SIGTERM in receiver.recv(64, socket.MSG_PEEK) else 0
        while tries and state.session is not None:
            time.sleep(_WAKE_INTERVAL)
            if not _is_waiting(receiver):
                break
            _interrupt_main()
            tries -= 1
        else:
            _take_numbers(receiver)


def _is_waiting(receiver: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return signal.SIGTERM in receiver.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return False


def _take_numbers(receiver: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        receiver.recv(4096, socket.MSG_DONTWAIT)


def _interrupt_main() -> None:
    if signal.getsignal(signal.SIGTERM) is _receive:
        state.woken = time.monotonic()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _ignore_at_exit() -> None:
    # Python resets its own handlers when it exits, but does not change this.
    if state.code is not None and signal.getsignal(signal.SIGTERM) is _receive:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _outermost() -> CodeType | None:
    """Return the outermost function of the main thread, if it is in one."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return None if frame is None else frame.f_code


def _is_ending() -> bool:
    """Return whether this process ends, rather than having caught the exception that ends it."""
    # While the interpreter exits, it calls functions of threading and of atexit by itself.
    outermost = _outermost()
    return outermost is None or outermost is not state.program or state.raised() is not None


def note_end() -> None:
    """Let the process end in time, since its program has ended by a notice."""
    state.program = None


def forget() -> None:
    """Let SIGTERM do what it did before, also after ranks have left together."""
    state.since = state.end = state.code = None
    stop_listening()


def _may_wait(error: BaseException, seconds: float) -> bool:
    """Let what a notice raises wait for the ends of calls whose interruption prevents a save."""
    if state.session is None or isinstance(error, KeyboardInterrupt | EndOfJob):
        return False
    return state.since is not None or seconds < FOLLOWING_NOTICE


def _grace() -> float:
    """Return how many seconds this rank has after the notice."""
    try:
        return float(os.environ[guard.GRACE_VARIABLE])
    except (KeyError, ValueError):
        return guard.GRACE


def begin() -> None:
    """Note that there is a notice."""
    state.since = time.monotonic()
    if state.session is not None:
        state.tables = [table() for table in list(state.session.created.values())]
    # Not a Thread, since a handler of a signal may interrupt the start of another one.
    start_new_thread(_watch, (state.since, _grace()))


def _watch(since: float, grace: float) -> None:
    """See to it that this process ends in time, also if its program waits for ever."""
    for part in _INTERRUPTS:
        time.sleep(max(0.0, since + part * grace - time.monotonic()))
        if state.since != since or state.session is None:
            break
        if not state.phase and signal.getsignal(signal.SIGTERM) is _receive:
            text = f"the program has not called check_leaving for {part * grace:g} s after SIGTERM"
            state.end = end = LateNotice(text)
            for _ in range(_WAKES):
                _interrupt_main()
                time.sleep(_WAKE_INTERVAL)
                if state.end is not end:
                    break
    time.sleep(max(0.0, since + _LAST_END * grace - time.monotonic()))
    # A program that has shut down its session, or has caught the exception, may go on.
    is_open = state.session is not None and state.phase != "saves"
    if state.since == since and (is_open or _is_ending()):
        _exit_now(f"{_LAST_END * grace:g} s after SIGTERM, this process ends at once")


def _exit_now(why: str) -> None:
    code = guard.TOLD_TO_END if state.has_saved else LOST
    saved = "saved" if state.has_saved else "not saved"
    with contextlib.suppress(OSError):
        os.write(2, f"multiverso: {why}; its tables are {saved}\n".encode())
    os._exit(code if state.code is None else state.code)


def ignore_notice(_worker: int = 0) -> None:
    """Let this process, which a rank has started, survive the notice that ends its job.

    Batch systems send SIGTERM to all processes of a job, and ranks that then save
    (``mv.init(on_term="leave")``) may need those that load their data. After this call SIGTERM ends
    the process only if the one that has started it sends the signal, or has ended. So
    ``Process.terminate()`` and the end of a ``DataLoader`` do what they did before.

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
    if state.session is not None:
        msg = "ignore_notice: expected a process that a rank has started, received a rank"
        raise StateError(msg)
    parent = multiprocessing.parent_process()
    pid = os.getppid() if parent is None else parent.pid
    checked.MV_IgnoreNotice(pid)


def code_of(end: EndOfJob) -> int:
    """Return the exit code of a rank that has left its job, whose function has ended."""
    note_end()
    return int(end.code or 0)


def end_with(code: int) -> EndOfJob:
    """Return the exception that is to end the program."""
    end = EndOfJob(code)
    state.raised = ref(end)
    return end


def end_process(code: int) -> None:
    """End the program, also from another thread than the main one."""
    if threading.current_thread() is threading.main_thread():
        raise end_with(code)
    # The main thread, which may wait for this one, raises the error when it runs again.
    state.end = end_with(code)
    if signal.getsignal(signal.SIGTERM) is _receive:
        signal.raise_signal(signal.SIGTERM)
    raise SystemExit(code)


def _earlier_handler() -> Callable[[int, Any], Any] | int:
    return signal.SIG_DFL if state.earlier is None else state.earlier


def _receive(number: int, frame: Any) -> None:
    if state.wakeup is not None:
        _take_numbers(state.wakeup[1])
    if state.end is not None:
        end, state.end = state.end, None
        try:
            raise end
        finally:
            del end  # Without a circle through this frame, it is freed when the program catches it.
    if state.phase:
        return
    if state.code is not None:
        if not _is_ending():
            forget()  # The program goes on, so the next signal does what it did before.
        return
    if state.session is not None and state.since is None:
        begin()
        if callable(state.earlier):
            state.earlier(number, frame)
    elif (
        state.session is None
        or time.monotonic() > max(state.since or 0, state.woken) + _SAME_NOTICE
    ):
        _pass_on(number, frame)


def _pass_on(number: int, frame: Any) -> None:
    """Do what the signal did before; but end a rank with another code than after a save."""
    handler = _earlier_handler()
    if callable(handler):
        handler(number, frame)
    elif handler == signal.SIG_DFL:
        if state.session is not None:
            _exit_now("a second SIGTERM ends this process at once")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


# A forked process, such as one that loads data, is to end when its parent sends it SIGTERM, but not
# by the notice. The signal has to wait until the process has restored the handler, because Python
# would forget it.
def _hold_signal() -> None:
    if state.session is not None:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _release_signal() -> None:
    mask = vars(_forking).pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _restore_in_child() -> None:
    listened = state.session is not None
    forget()
    if state.wakeup is not None:
        _replace_wakeup(state.wakeup[0].fileno(), -1)
        state.wakeup = None
    if listened:
        checked.MV_IgnoreNotice(os.getppid())
    _release_signal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_signal, after_in_parent=_release_signal, after_in_child=_restore_in_child
    )
