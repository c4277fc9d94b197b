"""A replica for models whose training step hands no gradients to its optimiser.

The way of mpi_learn: a step of SGD with the learning rate 1 changes the weights by the gradient, so
what they were minus what they are is the gradient.
"""

from typing import Any

import numpy as np

from multiverso.learn.data import length_of
from multiverso.learn.replicas.base import Batch, Replica, unpack

__all__ = ["DifferenceReplica"]


class DifferenceReplica(Replica):
    """See `Replica`. The optimiser of the model is to be SGD with the learning rate 1."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._sums: dict[str, float] = {}
        self._samples = 0
        self.pull()
        self.pull_state()

    def step(self, batch: Batch) -> None:
        """See `Replica.step`. The model has the parameters of before afterwards."""
        features, labels, sample_weight = unpack(batch)
        before = self.weights.copy()
        results = self.model.train_on_batch(
            features, labels, sample_weight=sample_weight, return_dict=True
        )
        samples = length_of(features)
        self._samples += samples
        for name, value in results.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * samples
        self.pull()
        np.subtract(before, self.weights, out=self.gradient)
        np.copyto(self.weights, before)
        self.push()

    def results(self) -> dict[str, float]:
        """See `Replica.results`."""
        results = {name: value / self._samples for name, value in self._sums.items()}
        self._sums, self._samples = {}, 0
        return results
