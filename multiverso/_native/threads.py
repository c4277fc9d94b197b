"""Threads whose start and end stay known, wherever an interrupt ends a wait for them.

An exception, such as that of Ctrl-C, may be raised between any two instructions of Python. In the
methods of `threading` and of futures, it can leave a lock locked for ever, for which the other
thread then waits. Here only functions in C have locks.
"""

from __future__ import annotations

import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from typing import Final

#: A second thread that waits for the same end looks again after this time.
_LOOK_SECONDS: Final = 0.05


class End:
    """The end of something in another thread, with `error` if it has failed."""

    def __init__(self) -> None:
        self.has_come = False
        self.error: BaseException | None = None
        self._lock = allocate_lock()
        self._lock.acquire()

    def set(self, error: BaseException | None = None) -> None:
        """Say that it has ended."""
        self.error = error
        self.has_come = True
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it has ended, after at most so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.has_come and (deadline is None or time.monotonic() < deadline):
            # The first who acquires the lock keeps it: `has_come` tells the others.
            self._lock.acquire(timeout=_LOOK_SECONDS)
        return self.has_come


class Thread:
    """A thread that calls a function, and for which the interpreter does not wait at its exit."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._function = function
        self._arguments = arguments
        self._numbers: list[int] = []  # that of the thread, when it has started
        self._end = End()

    def start(self) -> None:
        """Start the thread."""
        # One call starts the thread and notes it, so no interrupt comes in between.
        self._numbers.extend(map(start_new_thread, (self._run,), ((),)))

    def join(self) -> None:
        """Wait until the thread, if it has started, has ended."""
        if self._numbers:
            self._end.wait()

    def _run(self) -> None:
        try:
            self._function(*self._arguments)
        finally:
            self._end.set()
