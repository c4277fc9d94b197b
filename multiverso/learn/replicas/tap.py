"""An optimiser for Keras that changes nothing and keeps the gradients."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras

__all__ = ["GradientTap"]


class GradientTap(keras.optimizers.Optimizer):
    """Takes the gradients that a training step of Keras has computed, instead of applying them.

    So a model's own ``train_step``, with whatever it does about losses, metrics, weights of samples
    and layers that behave differently in training, is what gives the gradients.

    Attributes
    ----------
    gradients : list of tensor or None
        What was taken last, one for each trainable variable, None where there is no gradient.

    """

    def __init__(self) -> None:
        super().__init__(learning_rate=1.0, name="gradient_tap")
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
        """Return the trainable variables as they are, and the gradients as the state."""
        self.gradients = list(grads)
        return trainable_variables, self.gradients
