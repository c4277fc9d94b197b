"""Threads whose start and end stay known, wherever an interrupt ends a wait for them.

An exception, such as that of Ctrl-C, may be raised between any two instructions of Python. In the
methods of `threading` and of futures, it can leave a lock locked for ever, for which the other
thread then waits. Here only functions in C have locks.
"""

import time
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from queue import SimpleQueue
from threading import RLock
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
        """Start the thread, unless it has started."""
        # One call starts the thread and notes it, so no interrupt comes in between.
        if not self._numbers:
            self._numbers.extend(map(start_new_thread, (self._run,), ((),)))

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread, if it has started, has ended, at most so many seconds."""
        if self._numbers:
            self._end.wait(timeout)

    def _run(self) -> None:
        try:
            self._function(*self._arguments)
        finally:
            self._end.set()


class OrderedThread:
    """A thread that runs what it is given, one after the other."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(self._run)
        self._number: int | None = None  # of the thread, while it runs
        self._starting = RLock()  # since a signal handler may interrupt `put`

    def start(self) -> None:
        """Start the thread, which the first call would do."""
        self._thread.start()

    def put(self, run: Callable[[], object]) -> None:
        """Let the thread call `run` after what it was given before."""
        with self._starting:
            self.start()
            self._waiting.put(run)

    def is_current(self) -> bool:
        """Return whether the caller is in this thread, in something that it runs."""
        return get_ident() == self._number

    def end(self) -> None:
        """End the thread when it has run everything."""
        self._waiting.put(None)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, which `end` asks for."""
        self._thread.join(seconds)

    def _run(self) -> None:
        self._number = get_ident()
        while (run := self._waiting.get()) is not None:
            run()
            del run  # Otherwise what it refers to would live until the next call.
        self._number = None
