"""The values of some Keras variables as one flat array, as tables take and return it."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray


class FlatVariables:
    """Copies the values of variables to `array` and back.

    Parameters
    ----------
    variables : sequence of keras.Variable
        The variables, all of one dtype.
    dtype : str
        The dtype of `array`.

    Attributes
    ----------
    array : ndarray of one dimension
        The values at the last `pull` or `push`.

    """

    def __init__(self, variables: Sequence[Any], dtype: str) -> None:
        self._variables = list(variables)
        self._shapes = [tuple(variable.shape) for variable in variables]
        size = sum(int(np.prod(shape)) for shape in self._shapes)
        self.array: NDArray[Any] = np.empty(size, dtype)
        self.pieces = pieces_of(self.array, self._shapes)

    def pull(self) -> None:
        """Copy the values of the variables to `array`."""
        for piece, variable in zip(self.pieces, self._variables, strict=True):
            piece[...] = keras.ops.convert_to_numpy(variable.value)

    def push(self) -> None:
        """Copy `array` to the variables."""
        for piece, variable in zip(self.pieces, self._variables, strict=True):
            variable.assign(piece.copy())  # A framework may keep the memory that it is given.


class _TorchVariables(FlatVariables):
    """On PyTorch the variables are views of one flat tensor, on the CPU in the memory of `array`.

    There a table that writes to `array` writes to the model. On a GPU one copy moves all values.
    """

    def __init__(self, variables: Sequence[Any], dtype: str) -> None:
        import torch

        super().__init__(variables, dtype)
        tensors = [variable.value for variable in variables]
        self._flat = torch.empty(
            self.array.size, dtype=getattr(torch, dtype), device=tensors[0].device
        )
        for tensor, view in zip(tensors, pieces_of(self._flat, self._shapes), strict=True):
            view.copy_(tensor.detach())
            tensor.data = view
        self._host = self._flat
        if self._flat.device.type != "cpu":
            # A GPU reads and writes pinned memory fast.
            self._host = torch.empty_like(self._flat, device="cpu", pin_memory=True)
        self.array = self._host.numpy()

    def pull(self) -> None:
        if self._host is not self._flat:
            self._host.copy_(self._flat)

    def push(self) -> None:
        if self._host is not self._flat:
            self._flat.copy_(self._host)


def flat_variables(variables: Sequence[Any], dtype: str) -> FlatVariables:
    """Return the fastest `FlatVariables` for the backend of Keras."""
    dtypes = {str(keras.backend.standardize_dtype(variable.dtype)) for variable in variables}
    in_place = keras.backend.backend() == "torch" and dtypes == {dtype}
    return (_TorchVariables if in_place else FlatVariables)(variables, dtype)


def pieces_of(flat: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    """Return the consecutive parts of a flat array or tensor, in these shapes, as views."""
    pieces, end = [], 0
    for shape in shapes:
        begin, end = end, end + int(np.prod(shape))
        pieces.append(flat[begin:end].reshape(shape))
    return pieces
