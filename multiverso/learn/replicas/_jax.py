"""The replica for JAX: compiled steps from flat parameters to a flat gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from multiverso.learn.replicas._base import Batch, Replica, pieces_of, take_results, unpack


class JaxReplica(Replica):
    """A replica that keeps all values itself.

    Only `finish` updates the model's variables, except those of metrics, which `results` updates.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._captures = hasattr(model.optimizer, "gradients")
        if not self._captures and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._trainable = [variable.value for variable in model.trainable_variables]
        self._flatten = jax.jit(_concatenated)
        self._unflatten = jax.jit(lambda flat: pieces_of(flat, self.shapes))
        self._flat_weights = self._flatten(self._trainable)
        self._non_trainable = [variable.value for variable in model.non_trainable_variables]
        self._optimizer_values = [variable.value for variable in model.optimizer.variables]
        self._metrics_values = [variable.value for variable in model.metrics_variables]

        def gradient_step(flat: Any, others: Any, optimizer: Any, metrics: Any, data: Any) -> Any:
            state = (pieces_of(flat, self.shapes), others, optimizer, metrics)
            _, (trainable, others, gradients, metrics) = model.train_step(state, data)
            gradients = [
                jnp.zeros_like(value) if gradient is None else gradient
                for gradient, value in zip(gradients, trainable, strict=True)
            ]
            return _concatenated(gradients), others, metrics

        def whole_step(state: Any, data: Any) -> Any:
            return model.train_step(state, data)[1]

        eager = model.run_eagerly
        self._gradient_step = gradient_step if eager else jax.jit(gradient_step)
        self._whole_step = whole_step if eager else jax.jit(whole_step)
        self.pull()
        self.pull_state()

    def step(self, batch: Batch) -> None:
        data = unpack(batch)
        if self._captures:
            gradient, self._non_trainable, self._metrics_values = self._gradient_step(
                self._flat_weights,
                self._non_trainable,
                self._optimizer_values,
                self._metrics_values,
                data,
            )
            np.copyto(self.gradient, gradient)
            return
        state = (self._trainable, self._non_trainable, self._optimizer_values, self._metrics_values)
        state = self._whole_step(state, data)
        self._trainable, self._non_trainable, self._optimizer_values, self._metrics_values = state

    def pull(self) -> None:
        np.copyto(
            self.weights, self._flat_weights if self._captures else self._flatten(self._trainable)
        )

    def push(self) -> None:
        self._flat_weights = jnp.array(self.weights)  # A copy is needed, because `weights` changes.
        if not self._captures:
            self._trainable = self._unflatten(self._flat_weights)

    def pull_state(self) -> None:
        for piece, index in self.state_pieces:
            piece[...] = self._non_trainable[index]

    def push_state(self) -> None:
        self._non_trainable = list(self._non_trainable)
        for piece, index in self.state_pieces:
            self._non_trainable[index] = jnp.array(piece, self._non_trainable[index].dtype)

    def results(self) -> dict[str, float]:
        variables = self.model.metrics_variables
        for variable, value in zip(variables, self._metrics_values, strict=True):
            variable.assign(value)
        results = take_results(self.model)
        self._metrics_values = [variable.value for variable in variables]
        return results

    def set_learning_rate(self, value: float) -> None:
        super().set_learning_rate(value)
        learning_rate = self.model.optimizer._learning_rate
        for index, variable in enumerate(self.model.optimizer.variables):
            if variable is learning_rate:
                self._optimizer_values = list(self._optimizer_values)
                self._optimizer_values[index] = variable.value

    def finish(self) -> None:
        model = self.model
        trainable = self._unflatten(self._flat_weights) if self._captures else self._trainable
        for variables, values in (
            (model.trainable_variables, trainable),
            (model.non_trainable_variables, self._non_trainable),
            (model.optimizer.variables, self._optimizer_values),
        ):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)


def _concatenated(tensors: list[Any]) -> Any:
    return jnp.concatenate([jnp.ravel(tensor) for tensor in tensors])
