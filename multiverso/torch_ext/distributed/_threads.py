"""The threads of groups, which run Python's part of calls in the background."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

#: Seconds for which the end of a program waits for callbacks that still run.
_EXIT_SECONDS: Final = 5.0


class OrderedThread:
    """A thread that runs what it is given, one after the other. It starts with the first call."""

    #: The threads that may still run, which `join_all` ends with the program.
    _started: Final[weakref.WeakSet[OrderedThread]] = weakref.WeakSet()

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # since a signal handler may interrupt `put`

    def put(self, run: Callable[[], None]) -> None:
        """Let the thread call `run` after what it was given before."""
        with self._starting:
            if not self._has_started():
                self._started.add(self)
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._waiting.put(run)

    def is_current(self) -> bool:
        """Return whether the caller is in this thread, in something that it runs."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """End the thread when it has run everything."""
        if self._thread is not None:
            self._waiting.put(None)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, which `end` asks for."""
        if self._thread is not None and self._has_started():
            self._thread.join(seconds)

    def _has_started(self) -> bool:
        # Ctrl-C may come before a new thread starts.
        return self._thread is not None and self._thread.ident is not None

    @classmethod
    def join_all(cls) -> None:
        """Wait for a moment until all threads have ended.

        Python ends the threads that run when it exits wherever they are. In a callback of PyTorch
        this ends the process with SIGABRT.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        for started in list(cls._started):
            started.end()
            started.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (run := self._waiting.get()) is not None:
            run()
            del run  # Otherwise the tensors would live until the next call.
