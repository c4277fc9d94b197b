"""The order in which the calls of a group are made, at once or in the background."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

from multiverso._native.threads import OrderedThread
from multiverso.errors import ForkedError, StateError

#: Seconds for which the end of a program waits for callbacks that still run.
_EXIT_SECONDS: Final = 5.0


class QueuedCall:
    """A call that has been started."""

    def __init__(self, make: Callable[[], None]) -> None:
        self._make: Callable[[], None] | None = make
        self._ended = threading.Event()
        #: The error with which it has ended, once `is_over`.
        self.error: Exception | None = None

    def is_over(self) -> bool:
        """Return whether the call has ended. Does not wait."""
        return self._ended.is_set()

    def make(self) -> None:
        """Make the call, and forget its memory. Called once."""
        try:
            make, self._make = self._make, None
            if make is not None:
                make()
        except Exception as error:
            self.error = error
        except BaseException as error:
            self.error = StateError(f"the call has ended in {error!r}")
            raise
        finally:
            self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait for another thread to make the call. Return whether it has ended."""
        return self._ended.wait(seconds)


class CallQueue:
    """Makes calls one after the other, in the order in which they were started.

    A thread of its own makes those in the background. A thread that waits for one of them makes it
    itself, with those before it, since to wake another one would take longer. So a callback may
    also wait for a call that was started later.
    """

    #: The queues of this process, whose state a forked child does not know.
    _all: Final[weakref.WeakSet[CallQueue]] = weakref.WeakSet()

    def __init__(self) -> None:
        self._end_error: StateError | None = None
        self._renew()
        self._all.add(self)

    def _renew(self) -> None:
        """Begin without a call."""
        self._waiting: deque[QueuedCall] = deque()
        # Held while a call is made. A `with` statement always releases it, but Ctrl-C may come
        # between a call of `acquire` and the next statement: then no further call would be made.
        self._turn = threading.RLock()
        # A signal handler may end the queue while its thread starts a call.
        self._starting = threading.RLock()
        self.thread = OrderedThread()

    @classmethod
    def end_all_in_child(cls) -> None:
        """Let all calls in a forked child fail, whose locks a thread of the parent may hold."""
        for queue in list(cls._all):
            queue._renew()
            queue._end_error = ForkedError(
                "this process was forked from a rank of the group, whose calls only that rank can "
                "make"
            )

    @classmethod
    def join_all(cls) -> None:
        """End the threads of all queues, and wait for a moment until they have ended.

        Python ends the threads that run when it exits wherever they are. In a callback of PyTorch
        this ends the process with SIGABRT.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        for queue in list(cls._all):
            queue.thread.end()
            queue.thread.join(max(0.0, deadline - time.monotonic()))

    def run(self, make: Callable[[], None]) -> None:
        """Make a call, after those that have been started."""
        self.require_no_call()
        with self._turn:
            if self._waiting:
                self._make_until(None)
            self._make(make)

    def start(self, make: Callable[[], None], then: Callable[[], None]) -> QueuedCall:
        """Start a call. The thread of the queue runs `then` after it."""
        with self._starting:
            self.require_open()
            call = QueuedCall(lambda: self._make(make))
            self._waiting.append(call)
            self.thread.put(lambda: self._end(call, then))
        return call

    def wait(self, call: QueuedCall, seconds: float | None = None) -> bool:
        """Wait for a call, without end if there are no `seconds`. Return whether it has ended."""
        if call.is_over():
            return True
        self.require_parent()
        self.require_no_call()
        # With a limit, this thread must not begin to wait for other ranks.
        if seconds is not None and not self.thread.is_current():
            return call.wait(seconds)
        with self._turn:
            self._make_until(call)
        return True

    def drain(self, seconds: float) -> None:
        """Make the calls that have been started, unless another call takes longer than that."""
        self.require_no_call()
        if self._turn.acquire(timeout=seconds):
            try:
                self._make_until(None)
            finally:
                self._turn.release()

    def end(self, reason: str) -> None:
        """Let all further calls fail, and end the thread after these."""
        with self._starting:
            self._end_error = StateError(f"this rank has left the group: {reason}")
            self.thread.end()

    def require_open(self) -> None:
        """Raise StateError if the queue has ended."""
        if self._end_error is not None:
            raise self._end_error

    def require_parent(self) -> None:
        """Raise ForkedError in a child that was forked from the process of the queue."""
        if isinstance(self._end_error, ForkedError):
            raise self._end_error

    def require_no_call(self) -> None:
        """Raise StateError for a signal handler in the middle of a call, which this then ends."""
        if self._turn._is_owned():  # type: ignore[attr-defined]
            raise StateError(
                "expected no call of this group in progress in this thread: a signal handler may "
                "set a flag, which the program looks at between two calls"
            )

    def _make(self, make: Callable[[], None]) -> None:
        self.require_open()
        make()

    def _end(self, call: QueuedCall, then: Callable[[], None]) -> None:
        self.wait(call)
        then()

    def _make_until(self, last: QueuedCall | None) -> None:
        """Make the calls up to the `last`, or all of them."""
        while self._waiting and (last is None or not last.is_over()):
            call = self._waiting[0]
            try:
                call.make()
            finally:
                if call.is_over():  # Ctrl-C may come before it begins.
                    self._waiting.popleft()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CallQueue.end_all_in_child)
