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

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import memory_at

#: The number of elements that are processed at once, few enough to stay in a core's cache.
_BLOCK: Final = 1 << 14


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
