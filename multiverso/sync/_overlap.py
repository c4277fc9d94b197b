"""Exchanges with the tables in a background thread, while the model trains on.

The thread works on a copy of the parameters. With M the parameters, S what they were when the last
exchange began, and T what that has brought (the table's values, this worker's gain up to S among
them), a sync waits for the exchange and sets

    M = T + (M - S)

which keeps what this worker has learned meanwhile; then it begins the next with S = M. So a sync
brings what the others had given one sync ago. Where nothing has been learned meanwhile, M is T to
the bit.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import _session
from multiverso.errors import OperationTimeout

#: Elements worked on at once, few enough to stay in the cache.
_BLOCK: Final = 1 << 14
#: Seconds beyond the deadline of the calls in it after which an exchange is given up.
_GRACE: Final = 10.0
#: Seconds between two looks at pending signals.
_SLICE: Final = 0.1


class Exchange:
    """A function that a thread runs in the background, one run at a time.

    The session waits for it before whatever all ranks do together, and stops it when it is left.

    Parameters
    ----------
    run : callable
        Is given an event, and ends soon after that is set. What it raises is kept.
    name : str
        What messages call it.

    """

    def __init__(self, run: Callable[[threading.Event], None], name: str) -> None:
        self._run = run
        self._name = name
        self._session = _session.current()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin a run; the last one must have been waited for."""
        self._stop.clear()
        self._session.exchanges.add(self)
        # A daemon: it must not keep the process from its end, at which the session is left.
        self._thread = threading.Thread(
            target=self._work, name=f"multiverso: {self._name}", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end of the run; OperationTimeout if it does not come."""
        if self._thread is None:
            return
        limit = self._session.options.timeout + _GRACE
        deadline = time.monotonic() + limit
        while self._thread.is_alive():
            left = deadline - time.monotonic()
            if left <= 0:
                msg = f"{self._name}: an exchange in the background has not ended for {limit:.0f} s"
                raise OperationTimeout(msg)
            self._thread.join(min(left, _SLICE))
        self._thread = None
        self._session.exchanges.discard(self)

    def take_error(self) -> BaseException | None:
        """Return what the last run has raised, once."""
        error, self._error = self._error, None
        return error

    def stop(self) -> None:
        """Let the run end soon, without a result."""
        self._stop.set()

    def _work(self) -> None:
        try:
            self._run(self._stop)
        except BaseException as error:
            self._error = error


class Snapshot:
    """The parameters of one table as a sync in the background works with them.

    Parameters
    ----------
    values : ndarray, one dimension
        What the parameters are now.

    Attributes
    ----------
    brought : ndarray
        T above: what the native pass works on.

    """

    def __init__(self, values: NDArray[Any]) -> None:
        self._sent = values.copy()  # S
        self.brought = values.copy()

    def begin(self) -> None:
        """Give what was sent to the native pass."""
        np.copyto(self.brought, self._sent)

    def apply(self, addresses: list[int], sizes: list[int], is_sent: bool) -> None:
        """Set the parameters at `addresses` to M = T + (M - S).

        `is_sent` says that the next exchange begins from there: S = M. Otherwise S = T.
        """
        buffer = np.empty(_BLOCK, self._sent.dtype)
        end = 0
        for address, size in zip(addresses, sizes, strict=True):
            begin, end = end, end + size
            if size == 0:
                continue
            parameters = _array_at(address, size, self._sent.dtype)
            for low in range(0, size, _BLOCK):
                high = min(low + _BLOCK, size)
                mine, sent = parameters[low:high], self._sent[begin + low : begin + high]
                brought = self.brought[begin + low : begin + high]
                gain = np.subtract(mine, sent, out=buffer[: high - low])
                np.add(gain, brought, out=mine)
                np.copyto(sent, mine if is_sent else brought)


def _array_at(address: int, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), dtype)
