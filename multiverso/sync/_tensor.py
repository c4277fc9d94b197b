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
    group : Group or None
        The group through which the framework is accessed.

    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    is_fixed: bool
    group: Any

    def values(self) -> NDArray[Any]:
        """Return the parameters in one dimension, as `dtype`; a view or a copy."""

    def assign(self, values: NDArray[Any]) -> None:
        """Set the parameters to `values` (one dimension, `dtype`); the next delta starts there."""

    def address(self) -> int:
        """Return the address of the values for the native pass, C-contiguous and of `dtype`."""

    def settle(self) -> None:
        """Copy the result of the native pass to the parameters, unless it changed them in place."""


class Group(Protocol):
    """Tensors that are read from and written to a framework together.

    Attributes
    ----------
    tensors : sequence of Tensor
        The tensors, all of one dtype.
    addresses : list of int or None
        Their addresses between `gather` and `scatter`, if the group knows them. Then the tensors'
        own `address` and `settle` are not called.

    """

    tensors: Sequence[Any]
    addresses: list[int] | None

    def values(self) -> Sequence[NDArray[Any]]:
        """Return the current values of its tensors in the framework, without side effects."""

    def load(self) -> None:
        """Copy the values to the tensors' memory; the next delta starts there."""

    def gather(self) -> None:
        """Copy the values or deltas to the tensors' memory, for the native pass."""

    def scatter(self) -> None:
        """Return the tensors' memory to the framework."""
