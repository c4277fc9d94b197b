"""Exchanges with the tables in the background, while the model trains.

They work on a copy of the parameters. Let M be the parameters, S their values when the last
exchange began, and T its result: the table's values, which include this worker's delta up to S.
A sync waits for the exchange, sets

    M = T + (M - S)

which keeps this worker's delta since S, and begins the next exchange with S = M. So updates of
other workers arrive one sync later. Where M equals S, M becomes bitwise identical to T.

With a share `alpha`, as in Streaming DiLoCo, it sets M = T + alpha (M - T) instead. What is then
left of this worker's own values, alpha (M - T), is part of the next delta.

An interrupt may end a sync between any two instructions. An exchange is therefore one object, from
which the next call knows what is left to be done: whether it has been made, and which tensors have
its result. A tensor gets the result in the same call of the library that notes that it has it.
"""

from ctypes import c_int32, c_void_p, sizeof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays
from multiverso._native.arrays import memory_at
from multiverso._native.library import checked
from multiverso.sync._table_copy import add_change
from multiverso.sync._table_sync import TableSync
from multiverso.sync._tensor import Tensor
from multiverso.tables import ArrayTable
from multiverso.tables._background import Future


class _Exchange:
    """An exchange that has begun, until all tensors have its result."""

    def __init__(self, tensors: int) -> None:
        #: Its last attempt, unless that has failed.
        self.future: Future[Any] | None = None
        #: Whether it has succeeded.
        self.is_made = False
        #: For each tensor, 1 until the tensor has the result.
        self.pending = (c_int32 * tensors)(*[1] * tensors)


class OverlappedTableSync(TableSync):
    """A `TableSync` with exchanges in the background, on a copy; `alpha` is None or a share."""

    def __init__(self, tensors: list[Tensor], table: ArrayTable, alpha: float | None) -> None:
        is_integer = table.value_dtype.kind != "f"
        self._alpha = 0.0 if alpha is not None and is_integer else alpha
        super().__init__(tensors, table)

    def _create(self, values: NDArray[Any]) -> None:
        self._sent = values.copy()  # S
        self._received = values.copy()  # T, on which the native pass works
        self._exchange: _Exchange | None = None
        self._create_native(values, [values.size])

    @property
    def is_exchanging(self) -> bool:
        """Whether an exchange has begun whose result is not in all tensors."""
        return self._exchange is not None

    def begin(self) -> None:
        """Begin an exchange of the values that were taken, which `start` and `wait` make."""
        np.copyto(self._received, self._sent)
        self._exchange = _Exchange(len(self._sizes))

    def start(self) -> None:
        """Start the exchange, or what is left of it, in the background."""
        exchange = self._exchange
        assert exchange is not None
        addresses = (c_void_p * 1)(arrays.address(self._received))
        exchange.future = Future("sync", self._received)
        self._table._background.launch(
            exchange.future, checked.MV_ParamSyncStart, self._handle, addresses, 1
        )

    def wait(self) -> None:
        """Wait for the exchange, if one has begun; start it if it is not in flight."""
        exchange = self._exchange
        if exchange is None or exchange.is_made:
            return
        if exchange.future is None or not exchange.future._has_started:
            self.start()
        assert exchange.future is not None
        try:
            exchange.future.wait()
        except BaseException:
            # An interrupt leaves the exchange as it is: another one would be one more round.
            if exchange.future._has_failed:
                exchange.future = None
            raise
        exchange.is_made = True

    def merge(self) -> None:
        """Set the tensors to T + (M - S), or T + alpha (M - T), after a new exchange."""
        exchange = self._exchange
        if exchange is None:
            return
        parts = self._parts()
        try:
            for index, (tensor, sent, received) in enumerate(parts):
                if exchange.pending[index]:
                    pending = c_int32.from_buffer(exchange.pending, index * sizeof(c_int32))
                    before, share = (sent, 1.0) if self._alpha is None else (received, self._alpha)
                    add_change(received, tensor, before, tensor, share, pending)
            self._settle()
        except BaseException:
            self._settle()
            raise
        self._exchange = None

    def merge_and_take(self) -> None:
        """Merge, and take the values of the tensors for the next exchange: S = M."""
        self.merge()
        for tensor, sent, _ in self._parts():
            np.copyto(sent, tensor)

    def _parts(self) -> list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """Return for each tensor its values, and its parts of S and T."""
        self._locate()
        parts, end, dtype = [], 0, self._sent.dtype
        for address, size in zip(self._addresses, self._sizes, strict=True):
            begin, end = end, end + size
            memory = memory_at(int(address or 0), (size,), dtype) if size else np.empty(0, dtype)
            parts.append((memory, self._sent[begin:end], self._received[begin:end]))
        return parts
