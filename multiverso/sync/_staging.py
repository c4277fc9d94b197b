"""Memory of our own for the parameters of frameworks that hand out and take back all at once.

Where parameters of a framework cannot be changed in place (those of JAX and TensorFlow, on most
devices), or are not of their table's dtype, they are copied to a `Staging`, the native pass works
on that, and what it leaves there is handed back. A `StagedGroup` is what a list of such parameters
has in common.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays

#: What JAX takes over without a copy, and what is good for the processor anyway.
_ALIGNMENT: Final = 64  # bytes


class Staging:
    """One piece of memory with room for arrays of given shapes.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Of the arrays.
    dtype : numpy.dtype
        Of all of them.
    is_dense : bool
        Whether they follow each other without gaps; otherwise each is aligned to 64 bytes.

    Attributes
    ----------
    flat : ndarray of `dtype`, one dimension
        All of it.
    views : list of ndarray of `dtype`
        The arrays.
    addresses : list of int
        Where they are.
    begins : list of int
        With which element of `flat` they begin.

    """

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any], is_dense: bool
    ) -> None:
        grain = 1 if is_dense else _ALIGNMENT // dtype.itemsize
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        rooms = [-(-size // grain) * grain for size in sizes]
        whole = np.zeros(sum(rooms) + _ALIGNMENT // dtype.itemsize, dtype)
        skip = -arrays.address(whole) % _ALIGNMENT // dtype.itemsize
        self.flat: NDArray[Any] = whole[skip : skip + sum(rooms)]
        self.begins = [end - room for end, room in zip(accumulate(rooms), rooms, strict=True)]
        self.views: list[NDArray[Any]] = [
            self.flat[begin : begin + size].reshape(shape)
            for begin, size, shape in zip(self.begins, sizes, shapes, strict=True)
        ]
        self.addresses = [arrays.address(view) for view in self.views]


class Store(Protocol):
    """Where a framework keeps a list of parameters.

    Attributes
    ----------
    is_dense : bool
        Whether it wants them without gaps in between.

    """

    is_dense: bool

    def read(self, staging: Staging) -> None:
        """Copy the parameters' values there, cast to its dtype."""

    def write(self, staging: Staging) -> None:
        """Set the parameters to what is there, cast to theirs. It may change afterwards."""

    def expose(self) -> list[int] | None:
        """Return where else the native pass may work on the values; None: on a staging.

        Only asked for parameters of the table's dtype whose whole gain is added.
        """

    def accept(self) -> None:
        """Set the parameters to what the pass has left where `expose` has said."""


class StagedGroup:
    """Parameters of one store whose gains are added to a table in the same way.

    Parameters
    ----------
    store : Store
        Where they are.
    shapes : sequence of tuple of int
        Their shapes.
    dtype : numpy.dtype
        Of the table.
    is_exact : bool
        Whether the store keeps them in that dtype too, and not in half precision.
    share : float
        How much of what they gain is added to the table, 0 to 1. For integers 0 or 1.

    """

    def __init__(
        self,
        store: Store,
        shapes: Sequence[tuple[int, ...]],
        dtype: np.dtype[Any],
        is_exact: bool,
        share: float = 1.0,
    ) -> None:
        self._store = store
        self._share = share
        self._staging = Staging(shapes, dtype, store.is_dense)
        self._is_exact = is_exact
        self._is_whole = is_exact and share == 1
        self.addresses: list[int] | None = None
        # Otherwise the staging has the table's values as this worker knows them. What rounding or
        # averaging has taken from them is nothing that this worker has learned: so what counts is
        # what the parameters have gained since they were last written.
        self._now = self._staging
        self._last: NDArray[Any] | None = None
        if not self._is_whole:
            self._now = Staging(shapes, dtype, store.is_dense)
        self.tensors = [
            StagedTensor(self, view, address)
            for view, address in zip(self._staging.views, self._staging.addresses, strict=True)
        ]

    def values(self) -> list[NDArray[Any]]:
        """Return what the parameters are now; what gains are counted from stays as it is."""
        self._store.read(self._now)
        return self._now.views

    def load(self) -> None:
        """Bring the values to the tensors' memory, as where gains are counted from."""
        self._store.read(self._now)
        if not self._is_whole:
            np.copyto(self._staging.flat, self._now.flat)
            self._last = self._now.flat.copy()

    def gather(self) -> None:
        """Bring what they have gained to the tensors' memory, or say where the store has it."""
        if self._is_whole:
            self.addresses = self._store.expose()
            if self.addresses is None:
                self._store.read(self._staging)
        elif self._share:
            self._store.read(self._now)
            gain = self._now.flat - self._last
            if self._share != 1:
                gain *= self._share
            self._staging.flat += gain
            assert self._last is not None
            np.copyto(self._last, self._now.flat)

    def scatter(self) -> None:
        """Set the parameters to what they can hold of the tensors' memory."""
        if self.addresses is not None:
            self.addresses = None
            self._store.accept()
            return
        self._store.write(self._staging)
        if not self._is_whole and self._share:
            if not self._is_exact:
                self._store.read(self._now)
            written = self._staging if self._is_exact else self._now
            assert self._last is not None
            np.copyto(self._last, written.flat)


class StagedTensor:
    """One parameter of a group: its place in the staging."""

    is_fixed = False

    def __init__(self, group: StagedGroup, view: NDArray[Any], address: int) -> None:
        self.group = group
        self.dtype = view.dtype
        self.shape = view.shape
        self.size = view.size
        self._flat = view.reshape(-1)
        self._address = address

    def values(self) -> NDArray[Any]:
        """Return the values in the staging."""
        return self._flat

    def assign(self, values: NDArray[Any]) -> None:
        """Set the values in the staging."""
        np.copyto(self._flat, values)

    def address(self) -> int:
        """Return the address in the staging."""
        return self._address

    def settle(self) -> None:
        """Do nothing: the group hands all of it back."""
