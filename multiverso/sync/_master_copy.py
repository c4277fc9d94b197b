"""Table values that the parameters of a model cannot hold themselves.

A parameter of half precision cannot hold the sums of its table, and a parameter whose deltas are
averaged over the workers does not equal its table. A `MasterCopy` holds the values of the table
that this worker knows, in the table's dtype. Rounding and averaging change the parameter too, but
are no training. So the delta is the change of the parameter since the parameter was last written,
not the difference between the parameter and the table.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class MasterCopy:
    """The table's values for some parameters, and the parameters as they were last written.

    Parameters
    ----------
    values : ndarray
        Memory for the table's values, of the table's dtype.
    share : float, optional
        The share of this worker's delta that is added to the table, 0 to 1. For integers 0 or 1.

    Attributes
    ----------
    values : ndarray
        As given.

    """

    def __init__(self, values: NDArray[Any], share: float = 1.0) -> None:
        self.values = values
        self._share = share
        self._written: NDArray[Any] | None = None

    def start(self, now: NDArray[Any]) -> None:
        """Set the values to the current parameters `now`, from which the next delta starts."""
        np.copyto(self.values, now)
        self.record(now)

    def add_delta(self, now: NDArray[Any]) -> None:
        """Add the change of the parameters, from the last written ones to `now`, to the values."""
        if not self._share:
            return
        if self._written is not None:
            delta = now - self._written
            if self._share != 1:
                delta *= self._share
            self.values += delta
        self.record(now)

    def record(self, now: NDArray[Any]) -> None:
        """Record `now`, the parameters after they have been written."""
        if not self._share:
            return
        if self._written is None:
            self._written = np.empty_like(self.values)
        np.copyto(self._written, now)
