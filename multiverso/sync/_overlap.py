"""Exchanges with the tables in the background, while the model trains.

They work on a copy of the parameters. Let M be the parameters, S their values when the last
exchange began, and T its result: the table's values, which include this worker's delta up to S.
A sync waits for the exchange, sets

    M = T + (M - S)

which keeps this worker's delta since S, and begins the next exchange with S = M. So updates of
other workers arrive one sync later. Where M equals S, M becomes bitwise identical to T.

With a share `alpha`, as in Streaming DiLoCo, it sets M = T + alpha (M - T) instead. What is then
left of this worker's own values, alpha (M - T), is part of the next delta.
"""

from ctypes import byref, c_void_p
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays, capi
from multiverso._native.arrays import memory_at
from multiverso._native.library import checked
from multiverso.sync._table_copy import change_of
from multiverso.sync._table_sync import TableSync
from multiverso.sync._tensor import Tensor
from multiverso.tables import ArrayTable
from multiverso.tables._background import Future

#: The number of elements that are processed at once, few enough to stay in a core's cache.
_BLOCK: Final = 1 << 14


class OverlappedTableSync(TableSync):
    """A `TableSync` whose exchanges run in the background, on a copy of the tensors.

    `alpha` is the share of the description of this module, or None; integers have the share 0.
    """

    def __init__(self, tensors: list[Tensor], table: ArrayTable, alpha: float | None) -> None:
        is_integer = table.value_dtype.kind != "f"
        self._alpha = 0.0 if alpha is not None and is_integer else alpha
        super().__init__(tensors, table)

    def _create(self, values: NDArray[Any]) -> None:
        self._sent = values.copy()  # S
        self._received = values.copy()  # T, on which the native pass works
        self._is_exchanging = False  # Whether an exchange has begun and has not succeeded.
        self._future: Future[Any] | None = None  # Its last attempt, unless that has failed.
        self._create_native(values, [values.size])

    def begin(self) -> None:
        """Take the values of the last `apply` for an exchange, which `start` and `wait` make."""
        np.copyto(self._received, self._sent)
        self._is_exchanging = True

    def start(self) -> None:
        """Start the exchange, or what is left of it, in the background."""
        handle = capi.MV_Future()
        addresses = (c_void_p * 1)(arrays.address(self._received))
        checked.MV_ParamSyncStart(self._handle, addresses, 1, byref(handle))
        future = Future(handle, "sync", self._received, None)
        self._future = self._table._background.keep(future)

    def wait(self) -> None:
        """Wait for the exchange, if one has begun; start it if it is not in flight."""
        if not self._is_exchanging:
            return
        if self._future is None:
            self.start()
        assert self._future is not None
        future = self._future
        try:
            future.wait()
        finally:
            if future.done():
                self._future = None
        self._is_exchanging = False

    def apply(self, is_sent: bool) -> None:
        """Set the tensors to the result of the last exchange: M = T + (M - S).

        If `is_sent`, the next exchange sends these values, so S = M. Otherwise S = T, and the delta
        M - S is kept for the next call. With a share, the tensors do not change if `is_sent`.
        """
        self._locate()
        buffer = np.empty(_BLOCK, self._sent.dtype)
        end = 0
        for address, size in zip(self._addresses, self._sizes, strict=True):
            begin, end = end, end + size
            if size == 0:
                continue
            parameters = memory_at(int(address or 0), (size,), self._sent.dtype)
            for low in range(0, size, _BLOCK):
                high = min(low + _BLOCK, size)
                current, sent = parameters[low:high], self._sent[begin + low : begin + high]
                received = self._received[begin + low : begin + high]
                delta = buffer[: high - low]
                if self._alpha is None:
                    np.add(change_of(current, sent, delta), received, out=current)
                elif not is_sent:
                    change_of(current, received, delta)
                    np.copyto(current, received)
                    if self._alpha:
                        current += np.multiply(delta, self._alpha, out=delta)
                np.copyto(sent, current if is_sent else received)
        self._settle()
