"""What a call returns, a Work, and its errors."""

import os
import re
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType, FunctionType
from typing import Any, Final, TypeVar

import torch
from torch import distributed
from torch.distributed.distributed_c10d import Work as C10dWork

from multiverso.errors import ForkedError, MultiversoError, OperationTimeout
from multiverso.torch_ext.distributed._arguments import ArgumentTypeError, ArgumentValueError
from multiverso.torch_ext.distributed._queue import CallQueue, QueuedCall

_Class = TypeVar("_Class")

#: The wait of `Work.wait` without a timeout; the call itself ends within that of the group.
_NO_LIMIT: Final = timedelta(0)

#: Held while a thread makes the future of a call that was made at once.
_making_future: Final = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_making_future._at_fork_reinit)  # type: ignore[attr-defined]


#: What PyTorch calls what the library names in its texts.
_WORDS: Final = {
    r"\baggregate\b": "all_reduce",
    r"\bworker (?=\d)": "rank ",
    r"timeout= of init sets": "the timeout of the group says",
}


class ErrorsOfPyTorch:
    """Turns errors of the library into the one that PyTorch has for backends."""

    def __init__(self, group: str) -> None:
        self._group = group

    def converted(self, error: Exception, name: str) -> Exception:
        """Return the error of PyTorch for one of the library in a call, or another as it is."""
        if isinstance(error, RuntimeError) and not isinstance(error, MultiversoError):
            return error
        text = str(error)
        for ours, theirs in _WORDS.items():
            text = re.sub(ours, theirs, text)
        if type(error) in (ValueError, TypeError):  # The library received a wrong argument.
            wrong = ArgumentTypeError if type(error) is TypeError else ArgumentValueError
            return wrong(text)
        if not isinstance(error, MultiversoError):
            return error
        limit = "timed out: " if isinstance(error, OperationTimeout) else ""
        where = f"(in {name} of the process group of {self._group})"
        wrapped: Exception = distributed.DistBackendError(
            f"{type(error).__name__}: {limit}{text} {where}"
        )
        return wrapped


def untraced(kind: type[_Class]) -> type[_Class]:
    """Keep torch.compile from following a program into the methods of a class.

    It then calls them as they are, as it calls those of PyTorch's groups, which are in C++. This
    does what torch.compiler.disable does, which would import the compiler in every program.
    """
    frames = torch._C._dynamo.eval_frame
    for method in vars(kind).values():
        if isinstance(method, FunctionType) and hasattr(frames, "set_code_exec_strategy"):
            method._torchdynamo_disable = True  # type: ignore[attr-defined]
            skip = frames._FrameAction.SKIP  # also all that the method calls
            strategy = frames._FrameExecStrategy(skip, skip)
            frames.set_code_exec_strategy(method.__code__, strategy)
    return kind


def _is_hook(caller: FrameType | None) -> bool:
    """Return whether PyTorch's code in C++ calls in the backward pass of a model.

    The hook that DistributedDataParallel has for gradients in float16 takes only a future whose
    value is known to be tensors. In Python, there is none for a call that has not ended.
    """
    return caller is None or caller.f_code.co_name == "_engine_run_backward"


@untraced
class Received(C10dWork):  # type: ignore[misc]  # PyTorch has no types for it.
    """A tensor that gloo receives, and that is copied to one that is not contiguous."""

    def __init__(self, work: Any, finish: list[Callable[[], object]]) -> None:
        super().__init__()
        self._work = work
        self._finish = finish

    @classmethod
    def when_copied(cls, work: Any, finish: list[Callable[[], object]]) -> Any:
        """Return the work of gloo, or one whose wait also calls the functions `finish`."""
        return cls(work, finish) if finish else work

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Wait for the tensor, and return True or raise the error."""
        self._work.wait(timeout)
        finish, self._finish = self._finish, []
        with torch.inference_mode():
            for step in finish:
                step()
        return True

    def synchronize(self) -> None:
        """Wait for the tensor."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the tensor has been received; `wait` copies it."""
        return bool(self._work.is_completed())

    def is_success(self) -> bool:
        """Return whether it has been received without an error."""
        return bool(self._work.is_success())

    def exception(self) -> Any:
        """Return the error, if there is one."""
        return self._work.exception()

    def _source_rank(self) -> int:
        return int(self._work._source_rank())


@untraced
class Work(C10dWork):  # type: ignore[misc]  # PyTorch has no types for it.
    """A call that has been made, or is in a queue, or that this object starts."""

    # These are defaults of the class, because most calls have ended when they return a Work.
    _future: torch.futures.Future[Any] | None = None
    _call: QueuedCall | None = None

    def __init__(
        self,
        tensors: list[Any],
        queue: CallQueue,
        errors: ErrorsOfPyTorch,
        name: str,
        make: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._name = name
        self._tensors = tensors
        self._queue = queue
        self._errors = errors
        if make is not None:
            queue.require_open()
            self._make_future()  # before the thread, which would wait for Python's lock meanwhile
            try:
                self._call = queue.start(make, self._complete_future)
            except BaseException:
                self._complete_future()  # Otherwise it would keep this object for ever.
                raise

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Wait until the call has ended, and return True or raise its error."""
        seconds = timeout.total_seconds() if timeout > _NO_LIMIT else None
        if self._call is not None:
            self._require_parent()
            if not self._queue.wait(self._call, seconds):
                msg = f"{self._name} timed out: it has not ended within {seconds:g} s"
                raise distributed.DistBackendError(msg)
        error = self.exception()
        if error is not None:
            raise error
        return True

    def synchronize(self) -> None:
        """Wait until the call has ended."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the call has ended, also in an error."""
        return self._call is None or self._call.is_over()

    def is_success(self) -> bool:
        """Return whether the call has ended without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return the error of the call, or None if it has none so far."""
        if self._call is None or self._call.error is None:
            return None
        return self._errors.converted(self._call.error, self._name)

    def result(self) -> list[Any]:
        """Wait, and return the tensors that the call has set, or lists of them."""
        self.wait()
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future whose value is the list of tensors that the call sets."""
        self._require_parent()
        kind = getattr(self._tensors[0], "dtype", None) if self._tensors else None
        if kind is torch.float16 and _is_hook(sys._getframe(1)):
            return torch._C.fork(self.result)
        if self._call is None:
            with _making_future:
                if self._future is None:
                    self._make_future()
                    self._complete_future()
        elif self._queue.thread.is_current():
            # A callback may wait for this future, which the thread that runs it must complete.
            self._queue.wait(self._call)
            self._complete_future()
        return self._future

    def _require_parent(self) -> None:
        """Raise an error in a forked child for a call that only its parent knows the end of."""
        if not self.is_completed():
            try:
                self._queue.require_parent()
            except ForkedError as error:
                raise self._errors.converted(error, self._name) from None

    def _make_future(self) -> None:
        self._begun: torch.futures.Future[Any] = torch.futures.Future()
        # A callback that raises makes the future fail. DistributedDataParallel takes an error that
        # set_exception stores for a result.
        self._future = self._begun.then(lambda _: self.result())

    def _complete_future(self) -> None:
        if self._begun.done():
            return
        try:
            self._begun.set_result(None)
        except RuntimeError:
            # After Ctrl-C the starting thread completes it, and the thread of the queue may, too.
            if not self._begun.done():
                raise
