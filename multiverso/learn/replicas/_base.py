"""A rank's copy of the model, with its parameters and its gradient as flat arrays, as in tables.

The module of each backend connects these arrays with the variables of the framework.
"""

from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import native_order
from multiverso.learn._input import InputError
from multiverso.learn.data import mapped

Batch = tuple[Any, ...]

_FLOATS: Final = ("float32", "float64")


class Replica:
    """A model with its parameters as one flat array. Subclasses implement `step` for a backend.

    Parameters
    ----------
    model : keras.Model
        A built and compiled model, with `GradientCapture` as optimizer if gradients are needed.

    Attributes
    ----------
    weights : ndarray of float32 or float64, shape (size,)
        The trainable parameters at the last `pull` or `push`.
    gradient : ndarray of the same dtype and shape
        The gradient of the last batch, unless the optimizer of the model made a step instead.
    state : ndarray of the same dtype, one dimension
        Other floats of the model, such as running means, at the last `pull_state` or `push_state`.

    Raises
    ------
    InputError
        If the model has no trainable parameters, or these are not all float32 or all float64.

    """

    def __init__(self, model: Any) -> None:
        self.model = model
        variables = model.trainable_variables
        dtypes = {str(variable.dtype) for variable in variables}
        if len(dtypes) != 1 or not dtypes <= set(_FLOATS):
            found = " and ".join(sorted(dtypes)) or "none"
            raise InputError(
                f"the model: expected trainable weights, all float32 or all float64, found {found}"
            )
        self.dtype: np.dtype[Any] = np.dtype(dtypes.pop())
        self.shapes = [tuple(variable.shape) for variable in variables]
        self.weights: NDArray[Any] = np.empty(_size(self.shapes), self.dtype)
        self.gradient: NDArray[Any] = np.zeros_like(self.weights)
        indices = [
            index
            for index, variable in enumerate(model.non_trainable_variables)
            if str(variable.dtype) in _FLOATS
        ]
        shapes = [tuple(model.non_trainable_variables[index].shape) for index in indices]
        self.state: NDArray[Any] = np.empty(_size(shapes), self.dtype)
        #: Views of `state`, each with its index in the model's non-trainable variables.
        self.state_pieces = list(zip(pieces_of(self.state, shapes), indices, strict=True))

    def step(self, batch: Batch) -> None:
        """Train on a batch: set `gradient`, or let the model's optimizer make a step."""
        raise NotImplementedError

    def pull(self) -> None:
        """Copy the trainable parameters of the model to `weights`."""
        variables = self.model.trainable_variables
        for piece, variable in zip(pieces_of(self.weights, self.shapes), variables, strict=True):
            piece[...] = keras.ops.convert_to_numpy(variable.value)

    def push(self) -> None:
        """Copy `weights` to the trainable parameters of the model."""
        variables = self.model.trainable_variables
        for piece, variable in zip(pieces_of(self.weights, self.shapes), variables, strict=True):
            variable.assign(piece.copy())

    def pull_state(self) -> None:
        """Copy the other floats of the model to `state`."""
        variables = self.model.non_trainable_variables
        for piece, index in self.state_pieces:
            piece[...] = keras.ops.convert_to_numpy(variables[index].value)

    def push_state(self) -> None:
        """Copy `state` to the other floats of the model."""
        variables = self.model.non_trainable_variables
        for piece, index in self.state_pieces:
            variables[index].assign(piece.copy())

    def results(self) -> dict[str, float]:
        """Return loss and metrics since the last call, and reset both."""
        return take_results(self.model)

    def set_learning_rate(self, value: float) -> None:
        """Change the learning rate of the model's own optimizer."""
        self.model.optimizer.learning_rate = value

    def finish(self) -> None:
        """Update the model's variables on backends whose training does not update them."""


def take_results(model: Any) -> dict[str, float]:
    """Return loss and metrics of a model, and reset both."""
    results = {
        name: float(value) for name, value in _without_nesting(model.get_metrics_result()).items()
    }
    model.reset_metrics()
    return results


def _without_nesting(results: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in results.items():
        flat.update(_without_nesting(value) if isinstance(value, dict) else {name: value})
    return flat


def _size(shapes: list[tuple[int, ...]]) -> int:
    return sum(int(np.prod(shape)) for shape in shapes)


def pieces_of(flat: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    """Return the consecutive parts of a flat array or tensor, in these shapes, as views."""
    pieces, end = [], 0
    for shape in shapes:
        begin, end = end, end + int(np.prod(shape))
        pieces.append(flat[begin:end].reshape(shape))
    return pieces


def unpack(batch: Batch) -> tuple[Any, Any, Any]:
    """Return features, labels and sample weights (or None) of a batch, with tuples for lists."""
    if isinstance(batch, tuple | list) and 2 <= len(batch) <= 3:
        features, labels, *weights = mapped(native_order, batch)
        return features, labels, weights[0] if weights else None
    raise InputError(f"a batch: expected (features, labels), received {type(batch).__name__}")
