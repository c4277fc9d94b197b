"""Table values that the parameters of a model cannot hold themselves.

A parameter of half precision cannot hold the sums of its table, and a parameter whose deltas are
averaged over the workers does not equal its table. A `TableCopy` holds the values of the table
that this worker has received, in the table's dtype. Rounding and averaging also make the parameter
differ from the table, but are no training. So the delta is the change of the parameter since the
last sync wrote it, not the difference between the parameter and the table.
"""

from collections.abc import Callable
from ctypes import byref, c_int32
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays
from multiverso._native.dtypes import TABLE_CODES
from multiverso._native.library import checked

#: The share of a worker's delta that is added to a table, or a function that returns it.
Share: TypeAlias = float | Callable[[], float]


def change_of(
    current: NDArray[Any], before: NDArray[Any], out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return ``current - before``, and 0 where both are the same infinity or NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.asarray(np.subtract(current, before, out=out))
        if change.dtype.kind == "f" and not np.isfinite(change.sum()):
            change[(current == before) | (np.isnan(current) & np.isnan(before))] = 0
    return change


def add_change(
    base: NDArray[Any],
    current: NDArray[Any],
    before: NDArray[Any],
    out: NDArray[Any],
    scale: float = 1.0,
    pending: c_int32 | None = None,
) -> None:
    """Set `out` to ``base + scale * (current - before)``, and note in the same call that it is so.

    Equal infinities, and NaN and NaN, have no difference. The note is `pending`, which becomes 0;
    without it, `before` becomes `current`. An interrupt comes before both or after both.
    """
    checked.MV_AddChange(
        TABLE_CODES[out.dtype],
        out.size,
        scale,
        *map(arrays.address, (base, current, before, out)),
        None if pending is None else byref(pending),
    )


class TableCopy:
    """The table's values of some parameters, and the parameters as the last sync wrote them.

    `share`, 0 or more or a function that returns it, is the part of this worker's delta that is
    added; for integers it is 0 or 1. With the number 0, `add_delta` and `record` do nothing.
    """

    def __init__(self, values: NDArray[Any], share: Share = 1.0) -> None:
        self.values = values
        self._share = share
        self._written: NDArray[Any] | None = None

    def start(self, parameters: NDArray[Any]) -> None:
        """Set the values to `parameters`, from which the next delta starts."""
        np.copyto(self.values, parameters)
        self.record(parameters)

    def add_delta(self, parameters: NDArray[Any]) -> None:
        """Add this worker's share of the change from the recorded parameters to `parameters`."""
        if not self._share:
            return
        if self._written is None:
            self.record(parameters)
            return
        share = self._share() if callable(self._share) else self._share
        current = np.ascontiguousarray(parameters)
        add_change(self.values, current, self._written, self.values, share)

    def record(self, parameters: NDArray[Any]) -> None:
        """Record `parameters` after a sync has written them."""
        if not self._share:
            return
        if self._written is None:
            written = np.empty_like(self.values)
            np.copyto(written, parameters)
            self._written = written
        else:
            np.copyto(self._written, parameters)
