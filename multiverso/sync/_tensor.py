"""What tensors and groups of them are to those who keep them in step."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Tensor(Protocol):
    """Parameters in memory, of a fixed number of elements.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the table that they are kept in.
    shape : tuple of int
        Of the parameters, compared over the ranks.
    size : int
        How many elements they are.
    is_fixed : bool
        Whether the native pass works on the parameters themselves, which never move.

    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    is_fixed: bool

    def values(self) -> NDArray[Any]:
        """Return the parameters, flat and of `dtype`; a view or a copy."""

    def assign(self, values: NDArray[Any]) -> None:
        """Set the parameters to `values`, flat and of `dtype`: where they start from."""

    def address(self) -> int:
        """Return where they are now, C-contiguous and of `dtype`, for the native pass."""

    def settle(self) -> None:
        """Take note that the pass has changed what is at the address."""


class Group(Protocol):
    """Tensors that a framework hands out and takes back all at once; their attribute `group`.

    Attributes
    ----------
    tensors : sequence of Tensor
        Of one dtype.
    addresses : list of int or None
        Where they are between `gather` and `scatter`, so that none has to be asked for its address
        or to settle. None: each of them is.

    """

    tensors: Sequence[Any]
    addresses: list[int] | None

    def values(self) -> Sequence[NDArray[Any]]:
        """Return what its tensors are in the framework now; a look that changes nothing."""

    def load(self) -> None:
        """Bring the values to the tensors' memory, as where gains are counted from."""

    def gather(self) -> None:
        """Bring what they have gained to the tensors' memory, for the native pass."""

    def scatter(self) -> None:
        """Hand the tensors' memory back to the framework."""
