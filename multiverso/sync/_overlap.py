"""Exchanges with the tables in a background thread, while the model trains.

The thread works on a copy of the parameters. Let M be the parameters, S their values when the last
exchange began, and T its result: the table's values, which include this worker's delta up to S.
A sync waits for the exchange, sets

    M = T + (M - S)

which keeps this worker's delta since S, and begins the next exchange with S = M. So updates of
other workers arrive one sync later. Where M equals S, M becomes bitwise identical to T.

With a share `alpha`, as in Streaming DiLoCo, it sets M = T + alpha (M - T) instead. What is then
left of this worker's own values, alpha (M - T), is part of the next delta.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import _session
from multiverso._native.arrays import memory_at
from multiverso.errors import OperationTimeout

#: The number of elements that are processed at once, few enough to stay in a core's cache.
_BLOCK: Final = 1 << 14
#: An exchange is stuck if it runs for this many seconds longer than the session's timeout.
_GRACE_SECONDS: Final = 10.0
#: A wait returns to Python after this many seconds, so that Python can run signal handlers.
_JOIN_SECONDS: Final = 0.1


class Exchange:
    """A function that runs in a background thread, one run at a time.

    Collective calls of the session first wait for the run, and leaving the session stops the run.

    The argument of the function is an event; the function must return soon after the event is set.
    `take_error` returns an exception that it raised. Messages contain `name`.
    """

    def __init__(self, run: Callable[[threading.Event], None], name: str) -> None:
        self._run = run
        self._name = name
        self._session = _session.current()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start a run; `wait` must have returned for the last run."""
        self._stop.clear()
        self._session.exchanges.add(self)
        # A daemon thread does not delay the end of the process, which also leaves the session.
        self._thread = threading.Thread(
            target=self._run_once, name=f"multiverso: {self._name}", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end of the run; raise OperationTimeout if the run is stuck."""
        if self._thread is None:
            return
        timeout = self._session.options.timeout + _GRACE_SECONDS
        deadline = time.monotonic() + timeout
        while self._thread.is_alive():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                msg = f"{self._name}: the background exchange did not finish within {timeout:.0f} s"
                raise OperationTimeout(msg)
            self._thread.join(min(remaining, _JOIN_SECONDS))
        self._thread = None
        self._session.exchanges.discard(self)

    def take_error(self) -> BaseException | None:
        """Return the exception of the last run, if any, and forget it."""
        error, self._error = self._error, None
        return error

    def stop(self) -> None:
        """Request the end of the run without waiting; a stopped run has no result."""
        self._stop.set()

    def _run_once(self) -> None:
        try:
            self._run(self._stop)
        except BaseException as error:
            self._error = error


class Snapshot:
    """The arrays S and T of the description of this module, for one table.

    Both begin as `values`, the current parameters in one dimension. `alpha` is the share of the
    description, or None; integers have the share 0.
    """

    def __init__(self, values: NDArray[Any], alpha: float | None = None) -> None:
        self._alpha = 0.0 if alpha is not None and values.dtype.kind != "f" else alpha
        self._sent = values.copy()  # S
        self.received = values.copy()  # T, on which the native pass works

    def begin(self) -> None:
        """Copy the values to send to the memory of the native pass."""
        np.copyto(self.received, self._sent)

    def apply(self, addresses: list[int], sizes: list[int], is_sent: bool) -> None:
        """Set the parameters at `addresses` to M = T + (M - S).

        If `is_sent`, the next exchange sends these values, so S = M. Otherwise S = T, and the delta
        M - S is kept for the next call. With a share, the parameters do not change if `is_sent`.
        """
        buffer = np.empty(_BLOCK, self._sent.dtype)
        end = 0
        for address, size in zip(addresses, sizes, strict=True):
            begin, end = end, end + size
            if size == 0:
                continue
            parameters = memory_at(address, (size,), self._sent.dtype)
            for low in range(0, size, _BLOCK):
                high = min(low + _BLOCK, size)
                current, sent = parameters[low:high], self._sent[begin + low : begin + high]
                received = self.received[begin + low : begin + high]
                delta = buffer[: high - low]
                if self._alpha is None:
                    np.add(np.subtract(current, sent, out=delta), received, out=current)
                elif not is_sent:
                    np.subtract(current, received, out=delta)
                    np.copyto(current, received)
                    if self._alpha:
                        current += np.multiply(delta, self._alpha, out=delta)
                np.copyto(sent, current if is_sent else received)
