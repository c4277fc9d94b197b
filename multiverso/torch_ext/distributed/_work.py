"""What an asynchronous call returns: a Work, and the thread that completes its future."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from ctypes import byref, c_int32
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed.distributed_c10d import Work as C10dWork

from multiverso._native import capi
from multiverso._native.library import checked, lib
from multiverso.errors import MultiversoError

#: The wait of `Work.wait` without a timeout; the call itself ends within that of the group.
_NO_LIMIT: Final = timedelta(0)


class ErrorsOfPyTorch:
    """A context that turns errors of the library into the one that PyTorch has for backends.

    Parameters
    ----------
    group : str
        The group in words, for the message.

    """

    def __init__(self, group: str) -> None:
        self._group = group

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise DistBackendError if the library has raised an error."""
        if isinstance(error, MultiversoError):
            raise self.converted(error) from error

    def converted(self, error: Exception) -> Exception:
        """Return the error of PyTorch for one of the library, or another error as it is."""
        if not isinstance(error, MultiversoError):
            return error
        text = f"{type(error).__name__}: {error} (in the process group of {self._group})"
        wrapped: Exception = distributed.DistBackendError(text)
        return wrapped


#: Seconds for which the end of a program waits for callbacks that still run.
_EXIT_SECONDS: Final = 5.0


class FutureThread:
    """Completes the futures of a group in the order of its calls.

    Only Python can complete them. The thread starts with the first future.
    """

    #: The threads that may still run, which `join_all` ends with the program.
    _started: Final[weakref.WeakSet[FutureThread]] = weakref.WeakSet()

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, complete: Callable[[], None]) -> None:
        """Let the thread run `complete` after what it was given before."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="multiverso-futures", daemon=True
            )
            self._thread.start()
            self._started.add(self)
        self._waiting.put(complete)

    def is_current(self) -> bool:
        """Return whether the caller is in this thread, in a callback of a future."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """End the thread when it has run everything."""
        if self._thread is not None:
            self._waiting.put(None)

    @classmethod
    def join_all(cls) -> None:
        """Wait for a moment until all threads have ended.

        Python ends the threads that run when it exits wherever they are. In a callback of PyTorch
        this ends the process with SIGABRT.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        for started in list(cls._started):
            started.end()
            if started._thread is not None:
                started._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (complete := self._waiting.get()) is not None:
            complete()
            del complete  # Otherwise the tensors would live until the next call.


class Work(C10dWork):  # type: ignore[misc]  # PyTorch has no types for it.
    """A call in the background.

    Parameters
    ----------
    pending : list of MV_Future
        The parts of the call in the library, which may be none.
    tensors : list of Tensor
        The result of the future.
    used : list of Tensor
        The memory that the call uses, which is kept until it ends.
    finish : list of callable
        What remains to be done with the results.
    errors : ErrorsOfPyTorch
        The errors of the group.
    thread : FutureThread
        The thread of the group.

    """

    def __init__(
        self,
        pending: list[capi.MV_Future],
        tensors: list[torch.Tensor],
        used: list[torch.Tensor],
        finish: list[Callable[[], object]],
        errors: ErrorsOfPyTorch,
        thread: FutureThread,
    ) -> None:
        super().__init__()
        self._pending = pending
        self._tensors = tensors
        self._used = used
        self._finish = finish
        self._errors = errors
        self._thread = thread
        # One thread waits at a time. Another one has a lock of its own for the future, since
        # `get_future` must not wait for the call.
        self._lock = threading.Lock()
        self._future_lock = threading.Lock()
        self._is_complete = not pending and not finish
        self._error: Exception | None = None
        self._future: torch.futures.Future[Any] | None = None

    def __del__(self) -> None:
        for future in getattr(self, "_pending", ()):
            lib.MV_FutureRelease(future)

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Wait until the call has ended, and return True or raise its error."""
        seconds = timeout.total_seconds() if timeout > _NO_LIMIT else -1.0
        if not self._complete(seconds):
            msg = f"a collective call has not ended within {seconds:g} s"
            raise distributed.DistBackendError(msg)
        if self._error is not None:
            raise self._error
        return True

    def is_over(self) -> bool:
        """Return whether the library no longer uses the memory of the tensors. Does not wait."""
        done = c_int32(1)
        for future in self._pending[-1:]:
            lib.MV_FutureDone(future, byref(done))
        return bool(done.value)

    def synchronize(self) -> None:
        """Wait until the call has ended."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the call has ended, also in an error."""
        return self._complete(0.0)

    def is_success(self) -> bool:
        """Return whether the call has ended without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """Return the error of the call, or None if it has none so far."""
        return self._error if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """Wait, and return the tensors that the call has set."""
        self.wait()
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future whose value is the list of tensors that the call sets."""
        with self._future_lock:
            if self._future is not None:
                return self._future
            begun: torch.futures.Future[Any] = torch.futures.Future()
            # A callback that raises makes the future fail. DistributedDataParallel takes an error
            # that set_exception stores for a result.
            self._future = begun.then(lambda _: self._value())
        # A callback may wait for this future, which its own thread could then not complete.
        if self._is_complete or self._thread.is_current():
            self._complete_future(begun)
        else:
            self._thread.put(lambda: self._complete_future(begun))
        return self._future

    def _complete_future(self, begun: torch.futures.Future[Any]) -> None:
        try:
            self._complete(-1.0)
        except Exception as error:  # The wait has failed, and not the call.
            self._error = error
        begun.set_result(None)

    def _value(self) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._tensors

    def _complete(self, seconds: float) -> bool:
        """Wait for the call, without end if `seconds` is negative. Return whether it has ended."""
        if self._is_complete:
            return True
        deadline = time.monotonic() + seconds
        # Another thread may wait for the call without end, with the lock.
        if not self._lock.acquire(timeout=max(seconds, -1.0)):
            return False
        try:
            while self._pending:
                left = -1.0 if seconds < 0 else max(0.0, deadline - time.monotonic())
                done = c_int32()
                try:
                    checked.MV_FutureWait(self._pending[0], left, byref(done))
                except Exception as error:
                    if not done.value:
                        raise
                    self._error = self._error or self._errors.converted(error)
                if not done.value:
                    return False
                lib.MV_FutureRelease(self._pending.pop(0))
            finish, self._finish, self._used = self._finish, [], []
            for step in finish if self._error is None else ():
                step()
            self._is_complete = True
            return True
        finally:
            self._lock.release()
