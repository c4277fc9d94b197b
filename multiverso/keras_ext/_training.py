"""Steps of training outside ``fit``: their gradients, and a model's variables as flat arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from multiverso.keras_ext._variables import ModelWeights, backend_module, variable_dtype
from multiverso.sync._host_copy import HostCopy, Store


class GradientCapture(keras.optimizers.Optimizer):  # type: ignore[misc]
    """An optimizer that keeps the gradients of a training step instead of applying them.

    The model's own ``train_step`` computes the gradients, so its losses, metrics, sample weights
    and layers that behave differently in training all work as in Keras.
    """

    def __init__(self) -> None:
        super().__init__(learning_rate=1.0, name="gradient_capture")
        #: The last gradients, one for each trainable variable; zero for one without gradient.
        self.gradients: list[Any] = []
        #: Whether a ``train_step`` has passed gradients to this optimizer.
        self.is_used = False

    def build(self, variables: Sequence[Any]) -> None:
        """Create `gradients`."""
        if not self.built:
            super().build(variables)
            self.gradients = [
                self.add_variable_from_reference(variable, name="gradient")
                for variable in variables
            ]

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Keep `grads`."""
        self.is_used = True
        for variable, gradient in zip(self.gradients, grads, strict=True):
            if gradient is None:
                gradient = keras.ops.zeros_like(variable)
            variable.assign(keras.ops.convert_to_tensor(gradient))


def train_step_of(model: Any) -> Callable[[Any], Any]:
    """Return a function that trains a model on a batch, but unlike Keras' keeps the metrics."""
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    # An optimizer that only keeps gradients leaves the trainable variables as they are.
    keeps_weights = isinstance(model.optimizer, GradientCapture)
    step: Callable[[Any], Any] = backend_module().train_step_of(model, keeps_weights)
    return step


class FlatVariables:
    """The values of some variables of a model as a flat array, by a store that has all of them."""

    def __init__(self, store: Store, variables: Sequence[Any], dtype: str) -> None:
        self._store = store
        shapes = [tuple(variable.shape) for variable in variables]
        self._copy = HostCopy(shapes, np.dtype(dtype), is_dense=True)
        #: The values at the last `pull` or `push`, in one dimension.
        self.array: NDArray[Any] = self._copy.flat
        self.pull()

    def pull(self) -> None:
        """Copy the values of the variables to `array`."""
        self._store.read(self._copy)

    def push(self) -> None:
        """Copy `array` to the variables."""
        self._store.write(self._copy)


class _EachVariable:
    """The store of variables of any dtypes, which are accessed one by one."""

    is_dense = True

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = variables

    def read(self, host_copy: HostCopy) -> None:
        for variable, view in zip(self._variables, host_copy.views, strict=True):
            view[...] = keras.ops.convert_to_numpy(variable.value)

    def write(self, host_copy: HostCopy) -> None:
        for variable, view in zip(self._variables, host_copy.views, strict=True):
            variable.assign(view.copy())  # A framework may keep the memory that it is given.

    def expose(self) -> None: ...

    def accept(self) -> None: ...


def flat_variables(model: Any, variables: Sequence[Any], dtype: str) -> FlatVariables:
    """Return the fastest `FlatVariables` for variables of a model, or of its optimizer."""
    if {variable_dtype(variable) for variable in variables} != {dtype}:
        return FlatVariables(_EachVariable(variables), variables, dtype)
    module = backend_module()
    if keras.backend.backend() == "torch":
        flat: FlatVariables = module.FlatTensors(variables)
        return flat
    return FlatVariables(module.store_of(ModelWeights(model), list(variables)), variables, dtype)
