"""Calls on a table that threads of the library make in the background, as `get_async` starts them.

A get with ``fresh=True`` sees what this worker adds before its result is taken (`FreshGets`).
"""

import contextlib
import math
from collections import deque
from collections.abc import Callable
from ctypes import byref, c_int32
from threading import RLock
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet, finalize

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays, capi, supported
from multiverso._native.arguments import finite, flag
from multiverso._native.library import checked, complete, exception_for, lib
from multiverso.errors import MultiversoError, OperationTimeout, StateError

_T = TypeVar("_T")


class Future(Generic[_T]):
    """A call in the background, as `get_async` and `add_async` return it.

    The call continues if you drop the future. Its error is then raised by the next `flush` of the
    table, `multiverso.barrier` or another collective call, or the end of the session.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTable(2)
    ...     added = table.add_async([1, 2])
    ...     ended = added.wait(timeout=10)
    ...     ended, added.done(), table.get_async().result()
    (True, True, array([1., 2.], dtype=float32))

    """

    __slots__ = ("__weakref__", "_call", "_error", "_finish", "_handle", "_result")

    def __init__(self, call: str, result: _T, finish: Callable[[], None] | None = None) -> None:
        # Null until the call has started; None when the outcome is known.
        self._handle: capi.MV_Future | None = capi.MV_Future()
        self._call = call
        self._result = result
        self._finish = finish
        self._error: Exception | None = None

    def done(self) -> bool:
        """Return whether the call has ended, with or without an error. Does not wait."""
        handle = self._handle
        if handle is None:
            return True
        if not handle:
            return False
        done = c_int32()
        try:
            checked.MV_FutureDone(handle, byref(done))
        except StateError:
            if self._handle is None:  # Another thread has got the outcome in the meantime.
                return True
            raise
        return bool(done.value)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the call.

        Parameters
        ----------
        timeout : float, optional
            The longest wait in seconds; by default the session's timeout.

        Returns
        -------
        bool
            Whether the call has ended. False only with a `timeout`.

        Raises
        ------
        Exception
            The error of the call, each time.
        OperationTimeout
            Without a `timeout`, if the call does not end within the session's timeout.

        """
        limit = _limit(timeout)
        if self._handle is not None and not self._has_ended(limit):
            return False
        if self._error is not None:
            raise self._error
        return True

    def result(self, timeout: float | None = None) -> _T:
        """Wait for the end of the call and return its result.

        Parameters
        ----------
        timeout : float, optional
            As for `wait`.

        Returns
        -------
        numpy.ndarray or None
            The `out` of `get_async`, or the array that it has made; None for `add_async`.

        Raises
        ------
        Exception, OperationTimeout
            The error of the call, each time; or that the call does not end in time.

        """
        if not self.wait(timeout):
            raise OperationTimeout(f"{self._call}: the call has not ended after {timeout} s")
        finish = self._finish
        if finish is not None:
            finish()  # An interrupt lets the next call do it again, which gives the same result.
            self._finish = None
        return self._result

    @property
    def _has_started(self) -> bool:
        """Whether the library has accepted the call."""
        return self._handle is None or bool(self._handle)

    @property
    def _has_failed(self) -> bool:
        """Whether the call is known to have ended in an error."""
        return self._error is not None

    def _has_ended(self, limit: float) -> bool:
        handle = self._handle
        if handle is None:
            return True
        done = c_int32()
        # No exception of a signal handler, which may be raised here, must pass for the call's.
        status = lib.MV_FutureWait(handle, limit, byref(done))
        if not done.value:
            if self._handle is None and status == capi.MV_ERR_HANDLE:
                return True  # Another thread has got the outcome in the meantime.
            complete(status)
            return False
        self._error = exception_for(status) if status else None
        self._handle = None
        return True


#: The calls of each table, and those of tables that are gone, until they have ended: the library
#: may still write to their arrays.
_kept: Final[dict[int, deque[Future[Any]]]] = {}
#: The keys in `_kept` of tables that are gone.
_gone: Final[set[int]] = set()


def _forget(key: int) -> None:
    """Note that a table is gone, and forget the calls of those of which all calls have ended."""
    _gone.add(key)
    for each in tuple(_gone):
        # In a forked child nothing is known about the calls of its parent.
        with contextlib.suppress(MultiversoError):
            if all(call.done() for call in _kept.get(each, ())):
                _kept.pop(each, None)
                _gone.discard(each)


class BackgroundCalls:
    """Starts the background calls of one table, and keeps their arrays until they have ended.

    A call is kept before it starts. An interrupt can be raised as soon as the library has accepted
    the call, so no instruction that keeps the arrays may come later.
    """

    __slots__ = ("_calls", "_table")

    def __init__(self, table: capi.MV_Table) -> None:
        self._table = table
        self._calls: deque[Future[Any]] = deque()
        key = id(self._calls)
        _kept[key] = self._calls
        # The end of the handle has released the table, and waited for its calls if it could. Calls
        # may still use the arrays while the interpreter exits, so they are not forgotten then.
        finalize(table, _forget, key).atexit = False

    def start(
        self,
        operation: bytes,
        ids: NDArray[np.int64] | None,
        delta: NDArray[Any] | None,
        sink: NDArray[Any] | None,
        result: Any = None,
        finish: Callable[[], None] | None = None,
    ) -> Future[Any]:
        """Start an operation on arrays that the library accepts; `result` keeps `sink` alive."""
        buffer = delta if sink is None else sink
        return self.launch(
            Future(operation.decode(), result, finish),
            checked.MV_TableStart,
            self._table,
            operation,
            None if ids is None else arrays.pointer(ids),
            0 if ids is None else len(ids),
            None if delta is None else arrays.pointer(delta),
            None if sink is None else arrays.pin(sink),
            0 if buffer is None else buffer.size,
        )

    def launch(
        self, future: Future[Any], start: Callable[..., None], *arguments: object
    ) -> Future[Any]:
        """Start a call with a function of the library, which writes the future's handle."""
        self._drop_ended()
        self._calls.append(future)
        try:
            start(*arguments, byref(future._handle))  # type: ignore[arg-type]  # it is not None
        except BaseException:
            if not future._handle:
                self._calls.remove(future)
            raise
        return future

    def flush(self, timeout: float | None) -> None:
        """Wait for the calls and raise the first error that has not been raised."""
        checked.MV_TableFlush(self._table, _limit(timeout))
        self._drop_ended()  # Other threads may have started more calls.

    def is_idle(self) -> bool:
        """Return whether no call is under way."""
        self._drop_ended()
        return not self._calls

    def _drop_ended(self) -> None:
        # Other threads and signal handlers may do the same at any point, so this removes the very
        # call that has ended.
        calls = self._calls
        try:
            while (first := calls[0]).done():
                calls.remove(first)
            if not first._handle:
                calls.rotate(-1)  # It is being started, and must not keep the later ones here.
        except (IndexError, ValueError):
            pass  # There are no more, or somebody else has removed the first one.


class FreshGet:
    """Reads rows again that this worker has changed since it started to get them."""

    def __init__(
        self, ids: NDArray[np.int64], out: NDArray[Any], get: Callable[[NDArray[np.int64]], Any]
    ) -> None:
        self._ids = ids
        self._out = out
        self._get = get
        self._changed: list[NDArray[np.int64]] = []

    def note(self, ids: NDArray[np.int64] | None) -> None:
        """Record an add to rows, or to all."""
        self._changed.append(self._ids if ids is None else ids.copy())

    def patch(self) -> None:
        """Read the rows again that have been recorded."""
        if not self._changed:
            return
        is_stale = np.isin(self._ids, np.concatenate(self._changed))
        if is_stale.any():
            self._out[is_stale] = self._get(self._ids[is_stale])


class FreshGets:
    """The fresh gets of a table that have not returned."""

    __slots__ = ("_gets", "_lock")

    def __init__(self) -> None:
        self._gets: WeakSet[FreshGet] = WeakSet()
        self._lock = RLock()  # Other threads may begin and end gets while one notes an add.

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._gets)

    def note(self, ids: NDArray[np.int64] | None) -> None:
        """Record an add to rows, or to all."""
        if not self._gets:
            return
        with self._lock:
            gets = tuple(self._gets)
        for fresh in gets:
            fresh.note(ids)

    def finisher(
        self,
        ids: NDArray[np.int64],
        out: NDArray[Any],
        get: Callable[[NDArray[np.int64]], Any],
        finish: Callable[[], None] | None,
    ) -> Callable[[], None]:
        """Return what ends a get that begins: `finish`, and then reading changed rows again."""
        fresh = FreshGet(ids.copy(), out, get)
        with self._lock:
            self._gets.add(fresh)

        def patch() -> None:
            if finish is not None:
                finish()
            with self._lock:
                self._gets.discard(fresh)
            fresh.patch()

        return patch


def require_async_mode(fresh: object, mode: str) -> None:
    """Raise ValueError for a fresh get in another mode, TypeError if `fresh` is not a bool."""
    if flag(fresh, "fresh"):
        supported.check("fresh", mode)


def _limit(timeout: float | None) -> float:
    """Return the seconds of a wait for the library, which takes -1 for the session's timeout."""
    if timeout is None:
        return -1.0
    if timeout == math.inf:
        return 1e9
    return max(0.0, finite(timeout, "timeout"))
