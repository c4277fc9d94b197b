"""Ends all processes of a job when its launcher is killed, which the launcher cannot do itself.

A launcher, such as ``multiverso run``, forks a guard, and the guard starts and watches the job. If
the launcher ends, even by SIGKILL, the kernel sends SIGTERM to the guard, which ends the job as if
the launcher had received that signal. On Linux, the guard is also the parent of every process of
the job whose own parent has ended, so it finds them all, and ends those that ignore SIGTERM. If the
guard is killed instead, the launcher becomes their parent and does the same.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Collection
from typing import Final

from multiverso._local import processes
from multiverso.errors import MultiversoError

#: Seconds that processes have to end after a signal, unless the user chooses others.
GRACE: Final = 30.0
#: The exit code of a rank that was told to end and has saved, as shells report SIGTERM.
TOLD_TO_END: Final = 128 + signal.SIGTERM
#: The variable that tells ranks how many seconds they have, also in jobs without `multiverso run`.
GRACE_VARIABLE: Final = "MULTIVERSO_GRACE"
#: The same if the launcher was killed. All processes must then end within 5 seconds.
_SHORT_GRACE: Final = 3.0
#: Seconds between two looks at the guard, and between two signals to it.
_INTERVAL: Final = 0.05
_SIGNAL_INTERVAL: Final = 0.5

#: Options of Linux's prctl: a signal that this process receives when its parent ends, and whether
#: this process becomes the parent of descendants whose parents have ended.
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class _Guard:
    """What this process knows as a guard: the process id of its launcher, and the user's choice."""

    launcher: int | None = None
    grace: float = GRACE


_guard: Final = _Guard()


def end_with_parent(number: int) -> None:
    """Let this process receive a signal when its parent ends, where the system can arrange that."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def lost_launcher() -> bool:
    """Return whether this process is the guard of a launcher that has ended."""
    return _guard.launcher not in (None, os.getppid())


def choose_grace(seconds: float) -> None:
    """Set how many seconds the processes of a job have to end after a signal."""
    _guard.grace = seconds
    os.environ[GRACE_VARIABLE] = f"{seconds:g}"


def grace() -> float:
    """Return how many seconds the processes of a job have to end after a signal."""
    return _SHORT_GRACE if lost_launcher() else _guard.grace


def reap(children: Collection[int]) -> None:
    """Reap ended processes that this guard has inherited, but not `children`, which others reap."""
    if _guard.launcher is None:
        return
    with contextlib.suppress(ChildProcessError):
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while (ended := os.waitid(os.P_ALL, 0, options)) and ended.si_pid not in children:
            os.waitpid(ended.si_pid, 0)


def end_descendants() -> None:
    """Kill all processes that the job of this guard has started, directly or not."""
    if _guard.launcher is not None:
        _kill_descendants({os.getpid()})


def run_guarded(job: Callable[[], int], received: list[int]) -> int:
    """Run a job in a guard of this process; return its exit code, or minus the guard's signal.

    `job` ends its processes at SIGINT and SIGTERM. `received` are the signals that this process has
    received, to which it adds later ones. The first one is passed to the guard.
    """
    if sys.platform != "linux":
        return job()
    launcher = os.getpid()
    earlier = set(processes.descendants(launcher))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # A parent that ignores the ends of its children passes this on, and no code would be known.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # The guard uses none of the libraries that have started threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        guard = os.fork()
    if guard == 0:
        os._exit(_run_as_guard(job, launcher))
    try:
        code = _await(guard, received)
        if code < 0:  # A signal has ended the guard, and so its children are now this process's.
            _kill_descendants(earlier)
        return code
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _run_as_guard(job: Callable[[], int], launcher: int) -> int:
    code = 1
    try:
        # Ctrl-C in a terminal reaches only the launcher, which passes it on.
        os.setsid()
        _guard.launcher = launcher
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        end_with_parent(signal.SIGTERM)
        if not lost_launcher():
            code = job()
    except (MultiversoError, OSError) as error:
        sys.stderr.write(f"multiverso: {error}\n")
    except BaseException:
        sys.excepthook(*sys.exc_info())
    if lost_launcher():
        end_descendants()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _await(guard: int, received: list[int]) -> int:
    signal_time = 0.0
    while True:
        ended, status = os.waitpid(guard, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        now = time.monotonic()
        # The guard may receive the first signal before it can react to it.
        if received and now > signal_time + _SIGNAL_INTERVAL:
            os.kill(guard, received[0])
            signal_time = now
        processes.await_end([guard], _INTERVAL)


def _kill_descendants(kept: Collection[int]) -> None:
    """Kill all processes that descend from this one, except some, until none is left."""
    deadline = time.monotonic() + _SHORT_GRACE
    while time.monotonic() < deadline:
        found = [pid for pid in processes.descendants(os.getpid()) if pid not in kept]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_INTERVAL)
