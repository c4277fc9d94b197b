"""A rank's copy of the model: what a worker trains, and what the master validates with.

Whatever the framework, the parameters are one flat array, and so is the gradient: that is what the
tables hold. How they come to be flat is the framework's part, in the modules beside this one.
"""

from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from multiverso.learn._errors import InputError

__all__ = ["Batch", "Replica", "pieces_of", "take_results", "unpack"]

Batch = tuple[Any, ...]

_FLOATS: Final = ("float32", "float64")


class Replica:
    """A model with its parameters as one flat array. This base knows all frameworks, but no step.

    Parameters
    ----------
    model : keras.Model
        Built and compiled; the optimiser is a `GradientTap` where gradients are wanted.

    Attributes
    ----------
    weights : ndarray of float32 or float64, shape (size,)
        The trainable parameters, as they were when `pull` or `push` was called last.
    gradient : ndarray of the same
        The gradient of the last batch, if the model's optimiser is a `GradientTap`.
    state : ndarray of float32 or float64, shape (number,)
        What a model gathers without a gradient, such as running means; see `pull_state`.

    Raises
    ------
    InputError
        If the model has nothing to train, or parameters that are not float32 or all float64.

    """

    def __init__(self, model: Any) -> None:
        self.model = model
        variables = model.trainable_variables
        dtypes = {str(variable.dtype) for variable in variables}
        if len(dtypes) != 1 or not dtypes <= set(_FLOATS):
            found = " and ".join(sorted(dtypes)) or "none"
            msg = (
                f"the model: expected trainable weights, all float32 or all float64, found {found}"
            )
            raise InputError(msg)
        self.dtype: np.dtype[Any] = np.dtype(dtypes.pop())
        self.shapes = [tuple(variable.shape) for variable in variables]
        size = sum(int(np.prod(shape)) for shape in self.shapes)
        self.weights: NDArray[Any] = np.empty(size, self.dtype)
        self.gradient: NDArray[Any] = np.zeros(size, self.dtype)
        self.state_places = [
            place
            for place, variable in enumerate(model.non_trainable_variables)
            if str(variable.dtype) in _FLOATS
        ]
        self.state_shapes = [
            tuple(model.non_trainable_variables[place].shape) for place in self.state_places
        ]
        length = sum(int(np.prod(shape)) for shape in self.state_shapes)
        self.state: NDArray[Any] = np.empty(length, self.dtype)

    def step(self, batch: Batch) -> None:
        """Train on a batch: leave its gradient in `gradient`, or let the model's optimiser step."""
        raise NotImplementedError

    def pull(self) -> None:
        """Bring `weights` up to date with the model."""
        variables = self.model.trainable_variables
        for piece, variable in zip(pieces_of(self.weights, self.shapes), variables, strict=True):
            piece[...] = keras.ops.convert_to_numpy(variable.value)

    def push(self) -> None:
        """Set the model to `weights`."""
        variables = self.model.trainable_variables
        for piece, variable in zip(pieces_of(self.weights, self.shapes), variables, strict=True):
            variable.assign(piece.copy())

    def pull_state(self) -> None:
        """Bring `state` up to date with the model."""
        variables = self.model.non_trainable_variables
        for piece, place in zip(
            pieces_of(self.state, self.state_shapes), self.state_places, strict=True
        ):
            piece[...] = keras.ops.convert_to_numpy(variables[place].value)

    def push_state(self) -> None:
        """Set the model to `state`."""
        variables = self.model.non_trainable_variables
        for piece, place in zip(
            pieces_of(self.state, self.state_shapes), self.state_places, strict=True
        ):
            variables[place].assign(piece.copy())

    def results(self) -> dict[str, float]:
        """Return loss and metrics since the last call, and begin anew."""
        return take_results(self.model)

    def set_learning_rate(self, value: float) -> None:
        """Change the learning rate of the model's own optimiser."""
        self.model.optimizer.learning_rate = value

    def finish(self) -> None:
        """Bring the model's own variables up to date, where they are not all the time."""


def take_results(model: Any) -> dict[str, float]:
    """Return loss and metrics of a model, and reset them."""
    results = {name: float(value) for name, value in _flat(model.get_metrics_result()).items()}
    model.reset_metrics()
    return results


def _flat(results: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in results.items():
        flat.update(_flat(value) if isinstance(value, dict) else {name: value})
    return flat


def pieces_of(flat: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    """Return views of a flat array or tensor, one after the other, of these shapes."""
    pieces, end = [], 0
    for shape in shapes:
        begin, end = end, end + int(np.prod(shape))
        pieces.append(flat[begin:end].reshape(shape))
    return pieces


def unpack(batch: Batch) -> tuple[Any, Any, Any]:
    """Return features, labels and weights of samples (None if there are none) of a batch."""
    if isinstance(batch, tuple | list) and 2 <= len(batch) <= 3:
        return batch[0], batch[1], batch[2] if len(batch) == 3 else None
    msg = f"a batch: expected (features, labels), received {type(batch).__name__}"
    raise InputError(msg)
