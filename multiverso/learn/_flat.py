"""The values of some Keras variables as one flat array, as tables take and return it."""

import importlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from multiverso.keras_ext._variables import ModelWeights
from multiverso.sync._host_copy import HostCopy, Store


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
        shapes = [tuple(variable.shape) for variable in variables]
        size = sum(int(np.prod(shape)) for shape in shapes)
        self.array: NDArray[Any] = np.empty(size, dtype)
        self._pieces = pieces_of(self.array, shapes)
        self.pull()

    def pull(self) -> None:
        """Copy the values of the variables to `array`."""
        for piece, variable in zip(self._pieces, self._variables, strict=True):
            piece[...] = keras.ops.convert_to_numpy(variable.value)

    def push(self) -> None:
        """Copy `array` to the variables."""
        for piece, variable in zip(self._pieces, self._variables, strict=True):
            variable.assign(piece.copy())  # A framework may keep the memory that it is given.


class _TorchVariables(FlatVariables):
    """On PyTorch the variables are views of one flat tensor, on the CPU in the memory of `array`.

    There a table that writes to `array` writes to the model. On a GPU one copy moves all values.
    """

    def __init__(self, variables: Sequence[Any], dtype: str) -> None:
        import torch

        tensors = [variable.value for variable in variables]
        size = sum(tensor.numel() for tensor in tensors)
        self._flat = torch.empty(size, dtype=getattr(torch, dtype), device=tensors[0].device)
        shapes = [tuple(tensor.shape) for tensor in tensors]
        for tensor, view in zip(tensors, pieces_of(self._flat, shapes), strict=True):
            view.copy_(tensor.detach())
            tensor.data = view
        self._host = self._flat
        if self._flat.device.type != "cpu":
            # A GPU reads and writes pinned memory fast.
            self._host = torch.empty_like(self._flat, device="cpu", pin_memory=True)
        self.array = self._host.numpy()
        self.pull()

    def pull(self) -> None:
        if self._host is not self._flat:
            self._host.copy_(self._flat)

    def push(self) -> None:
        if self._host is not self._flat:
            self._flat.copy_(self._host)


class _StoredVariables(FlatVariables):
    """On JAX and TensorFlow one compiled call reads or writes all variables."""

    def __init__(self, model: Any, variables: Sequence[Any], dtype: str) -> None:
        module = importlib.import_module(f"multiverso.keras_ext._{keras.backend.backend()}")
        self._store: Store = module.store_of(ModelWeights(model), list(variables))
        shapes = [tuple(variable.shape) for variable in variables]
        self._copy = HostCopy(shapes, np.dtype(dtype), is_dense=True)
        self.array = self._copy.flat
        self.pull()

    def pull(self) -> None:
        self._store.read(self._copy)

    def push(self) -> None:
        self._store.write(self._copy)


def flat_variables(model: Any, variables: Sequence[Any], dtype: str) -> FlatVariables:
    """Return the fastest `FlatVariables` for variables of a model, or of its optimizer."""
    dtypes = {str(keras.backend.standardize_dtype(variable.dtype)) for variable in variables}
    if dtypes != {dtype}:
        return FlatVariables(variables, dtype)
    if keras.backend.backend() == "torch":
        return _TorchVariables(variables, dtype)
    return _StoredVariables(model, variables, dtype)


def pieces_of(flat: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    """Return the consecutive parts of a flat array or tensor, in these shapes, as views."""
    pieces, end = [], 0
    for shape in shapes:
        begin, end = end, end + int(np.prod(shape))
        pieces.append(flat[begin:end].reshape(shape))
    return pieces
