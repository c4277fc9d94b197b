"""The interfaces through which `TensorSync` accesses the parameters of a model."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Tensor(Protocol):
    """One array of parameters, with a fixed number of elements.

    Attributes
    ----------
    dtype : numpy.dtype
        The dtype of the table that keeps the parameters.
    shape : tuple of int
        The shape of the parameters, which must be the same on all ranks.
    size : int
        The number of elements.
    is_fixed : bool
        Whether the native pass works on the tensor's memory, at an address that never changes.
    group : TensorGroup or None
        The group through which the framework is accessed.

    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    is_fixed: bool
    group: Any

    def values(self) -> NDArray[Any]:
        """Return a view or a copy of the parameters in one dimension, as `dtype`."""

    def assign(self, values: NDArray[Any]) -> None:
        """Set the parameters to `values` (one dimension, `dtype`), where the next delta starts."""

    def address(self) -> int:
        """Return the address of the values for the native pass, C-contiguous and of `dtype`."""

    def settle(self) -> None:
        """Copy the result of the native pass to the parameters, unless it changed them in place."""


class TensorGroup(Protocol):
    """Tensors that are read from and written to a framework together.

    Attributes
    ----------
    tensors : sequence of Tensor
        The tensors, all of one dtype.
    addresses : list of int or None
        The addresses of the tensors between `gather` and `scatter`, if the group knows them. Then
        `address` and `settle` of the tensors are not called.

    """

    tensors: Sequence[Any]
    addresses: list[int] | None

    def values(self) -> Sequence[NDArray[Any]]:
        """Return the current values of the tensors in the framework, without side effects."""

    def load(self) -> None:
        """Copy the values, from which the next delta starts, to the tensors' memory."""

    def gather(self) -> None:
        """Copy the values or deltas to the tensors' memory, for the native pass."""

    def scatter(self) -> None:
        """Return the tensors' memory to the framework."""
