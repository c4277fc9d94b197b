"""What a call returns, a Work, and its errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed.distributed_c10d import Work as C10dWork

from multiverso.errors import MultiversoError
from multiverso.torch_ext.distributed._threads import OrderedThread

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


class Work(C10dWork):  # type: ignore[misc]  # PyTorch has no types for it.
    """A call in the background.

    Parameters
    ----------
    pending : list of Started or Queued
        The parts of the call, which may be none.
    tensors : list of Tensor
        The result of the future.
    used : list of Tensor
        The memory that the call uses, which is kept until it ends.
    finish : list of callable
        What remains to be done with the results.
    errors : ErrorsOfPyTorch
        The errors of the group.
    thread : OrderedThread
        The thread that completes the futures of the group.

    """

    def __init__(
        self,
        pending: list[Any],
        tensors: list[torch.Tensor],
        used: list[torch.Tensor],
        finish: list[Callable[[], object]],
        errors: ErrorsOfPyTorch,
        thread: OrderedThread,
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
        return all(call.is_over() for call in self._pending[-1:])

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
                if not self._pending[0].wait(left):
                    return False
                error = self._pending.pop(0).error
                if error is not None and self._error is None:
                    self._error = self._errors.converted(error)
            finish, self._finish, self._used = self._finish, [], []
            for step in finish if self._error is None else ():
                step()
            self._is_complete = True
            return True
        finally:
            self._lock.release()
