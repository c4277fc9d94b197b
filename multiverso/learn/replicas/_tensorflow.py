"""The replica for TensorFlow: a graph from flat parameters to a flat gradient."""

from typing import Any

import numpy as np
import tensorflow as tf

from multiverso.learn.replicas._base import Batch, Replica, unpack


class TensorFlowReplica(Replica):
    """A replica that assigns `weights` to its variables when a step captures gradients."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._captures = hasattr(model.optimizer, "gradients")
        if not self._captures and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._variables = [variable.value for variable in model.trainable_variables]

        def gradient_step(flat: Any, data: Any) -> Any:
            self._assign(flat)
            model.train_step(data)
            gradients = [
                tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
                for gradient, variable in zip(
                    model.optimizer.gradients, self._variables, strict=True
                )
            ]
            return _concatenated(gradients)

        def whole_step(data: Any) -> None:
            model.train_step(data)

        eager = model.run_eagerly
        self._gradient_step = _compiled(gradient_step, model, eager)
        self._whole_step = _compiled(whole_step, model, eager)
        self.pull()
        self.pull_state()

    def step(self, batch: Batch) -> None:
        data = unpack(batch)
        if self._captures:
            gradient = self._gradient_step(tf.constant(self.weights), data)
            np.copyto(self.gradient, gradient.numpy())
        else:
            self._whole_step(data)

    def pull(self) -> None:
        np.copyto(self.weights, _concatenated(self._variables).numpy())

    def push(self) -> None:
        if not self._captures:  # A step that captures gradients assigns the weights itself.
            self._assign(tf.constant(self.weights))

    def finish(self) -> None:
        if self._captures:
            self._assign(tf.constant(self.weights))

    def _assign(self, flat: Any) -> None:
        end = 0
        for variable, shape in zip(self._variables, self.shapes, strict=True):
            begin, end = end, end + int(np.prod(shape))
            variable.assign(tf.reshape(flat[begin:end], shape))


def _compiled(function: Any, model: Any, eager: bool) -> Any:
    if eager:
        return function
    jit_compile = bool(model.jit_compile) and model.jit_compile != "auto"
    return tf.function(function, reduce_retracing=True, jit_compile=jit_compile)


def _concatenated(tensors: list[Any]) -> Any:
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
