"""Weights of workers that train differently much between two syncs."""

from collections.abc import Callable
from typing import TypeAlias

from multiverso._native.arguments import finite
from multiverso.sync._layout import shortened
from multiverso.tables import ArrayTable

#: What a worker has trained since its last sync, or a function that returns it.
Weight: TypeAlias = float | Callable[[], float]


class WeightedMerge:
    """Relates a worker's weights to those of all workers. The constructor is collective."""

    def __init__(self, weight: Weight, name: str) -> None:
        self._weight = weight
        self._name = name
        self._table = ArrayTable(2, dtype="float64", name=f"{shortened(name)}, weights")

    def next_scale(self) -> float:
        """Return this sync's weight divided by the mean of all weights so far."""
        weight = self._weight() if callable(self._weight) else self._weight
        if (number := finite(weight, "weight", "a positive number")) <= 0:
            msg = f"{self._name}: weight: expected a positive number, received {weight!r}"
            raise ValueError(msg)
        return self.scale_of(number)

    def scale_of(self, weight: float) -> float:
        """Return a weight divided by the mean of all positive weights so far.

        In sync mode all workers call this, those that have not trained with 0.
        """
        total, count = self._table.add_get([weight, float(weight > 0)])
        return float(weight * count / total) if weight else 0.0
