"""Two ways to obtain gradients: an optimizer that captures them, and the change by an SGD step."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from multiverso.learn.data import length_of
from multiverso.learn.replicas._base import Batch, Replica, unpack


class GradientCapture(keras.optimizers.Optimizer):
    """An optimizer that keeps the gradients of a training step instead of applying them.

    The model's own ``train_step`` computes the gradients, so its losses, metrics, sample weights
    and layers that behave differently in training all work as in Keras.

    Attributes
    ----------
    gradients : list of tensor, or None before the first step
        The last gradients, one for each trainable variable; None for a variable without gradient.

    """

    def __init__(self) -> None:
        super().__init__(learning_rate=1.0, name="gradient_capture")
        self.gradients: list[Any] | None = None

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Keep `grads`."""
        self.gradients = list(grads)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Keep the first of each pair."""
        self.gradients = [gradient for gradient, _ in grads_and_vars]
        return self.iterations

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> tuple[Any, Any]:
        """Return the trainable variables unchanged, and the gradients as the state."""
        self.gradients = list(grads)
        return trainable_variables, self.gradients


class DifferenceReplica(Replica):
    """A replica for models whose ``train_step`` passes no gradients to the optimizer.

    As in mpi_learn, the model's optimizer is SGD with learning rate 1, whose step changes the
    weights by the gradient. So the gradient is the weights before the step minus those after it.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._sums: dict[str, float] = {}
        self._samples = 0
        self.pull()
        self.pull_state()

    def step(self, batch: Batch) -> None:
        """Compute the gradient of a batch, and restore the weights."""
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
        """Return loss and metrics since the last call, and reset them."""
        results = {name: value / self._samples for name, value in self._sums.items()}
        self._sums, self._samples = {}, 0
        return results
