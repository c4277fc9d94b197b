"""Host copies: memory for parameters that the native pass cannot change in place.

Parameters of JAX and, on most devices, TensorFlow need one, and so do parameters whose dtype
differs from that of their table. A `HostCopyGroup` copies the parameters to a `HostCopy`, on which
the native pass works, and copies the result back to the framework.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._array_tensors import PlainArray
from multiverso.sync._table_copy import Share, TableCopy
from multiverso.sync._tensor import Tensor

#: The bytes of a cache line. JAX adopts memory with this alignment without a copy.
_ALIGNMENT: Final = 64


class HostCopy:
    """One block of memory for arrays of given shapes, without gaps or each aligned to 64 bytes."""

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any], is_dense: bool
    ) -> None:
        multiple = 1 if is_dense else _ALIGNMENT // dtype.itemsize
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        padded_sizes = [-(-size // multiple) * multiple for size in sizes]
        memory = np.zeros(sum(padded_sizes) + _ALIGNMENT // dtype.itemsize, dtype)
        skip = -arrays.address(memory) % _ALIGNMENT // dtype.itemsize
        #: The whole block, in one dimension.
        self.flat: NDArray[Any] = memory[skip : skip + sum(padded_sizes)]
        #: The index in `flat` of the first element of each array.
        self.begins = [
            end - size for end, size in zip(accumulate(padded_sizes), padded_sizes, strict=True)
        ]
        #: The arrays.
        self.views: list[NDArray[Any]] = [
            self.flat[begin : begin + size].reshape(shape)
            for begin, size, shape in zip(self.begins, sizes, shapes, strict=True)
        ]
        self.addresses = [arrays.address(view) for view in self.views]


class Store(Protocol):
    """The place where a framework keeps a list of parameters."""

    #: Whether the host copy must have no gaps between the parameters.
    is_dense: bool

    def read(self, host_copy: HostCopy) -> None:
        """Copy the values of the parameters to `host_copy`, cast to its dtype."""

    def write(self, host_copy: HostCopy) -> None:
        """Copy `host_copy` to the parameters, cast to their dtype. The caller may then reuse it."""

    def expose(self) -> list[int] | None:
        """Return addresses where the native pass adds whole deltas, or None to copy the values."""

    def accept(self) -> None:
        """Set the parameters to the result of the pass at the addresses from `expose`."""


class HostCopyGroup:
    """Parameters of one store whose deltas are added to a table with the same share."""

    def __init__(
        self,
        store: Store,
        shapes: Sequence[tuple[int, ...]],
        dtype: str,
        share: Share,
    ) -> None:
        self._store = store
        self._share = share
        table_dtype = TABLE_DTYPES[dtype]
        self._host_copy = HostCopy(shapes, table_dtype, store.is_dense)
        self._is_exact = table_dtype == dtype
        self._needs_table_copy = not self._is_exact or share != 1
        self.addresses: list[int] | None = None
        # Whether the store has exposed its own memory since the last `gather`. Unlike `addresses`
        # it stays, so that `scatter` can be called again after an interrupt.
        self._is_exposed = False
        # The host copy also serves as the table copy, so the current parameters are read elsewhere.
        self._table_copy = TableCopy(self._host_copy.flat, share)
        self._current = (
            HostCopy(shapes, table_dtype, store.is_dense)
            if self._needs_table_copy
            else self._host_copy
        )
        self.tensors = [PlainArray(view, self) for view in self._host_copy.views]

    def values(self) -> list[NDArray[Any]]:
        """Return the current values of the parameters; this does not affect the next delta."""
        self._store.read(self._current)
        return self._current.views

    def load(self) -> None:
        """Copy the values, from which the next delta starts, to the tensors' memory."""
        self._is_exposed = False
        self._store.read(self._current)
        if self._needs_table_copy:
            self._table_copy.start(self._current.flat)

    def gather(self) -> None:
        """Copy the values or deltas to the tensors' memory, or let the store expose its own."""
        if not self._needs_table_copy:
            self.addresses = self._store.expose()
            self._is_exposed = self.addresses is not None
            if not self._is_exposed:
                self._store.read(self._host_copy)
        elif self._share:
            self._store.read(self._current)
            self._table_copy.add_delta(self._current.flat)

    def scatter(self) -> None:
        """Set the parameters to the tensors' memory, rounded to their dtype."""
        if self._is_exposed:
            self._store.accept()
            self.addresses = None
            return
        self._store.write(self._host_copy)
        if self._needs_table_copy and self._share:
            if not self._is_exact:
                self._store.read(self._current)
            self._table_copy.record((self._host_copy if self._is_exact else self._current).flat)


def host_copy_tensors(
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[str],
    shares: Sequence[Share],
    store_of: Callable[[list[int]], Store],
) -> list[Tensor]:
    """Return tensors for parameters; `store_of` makes the store of those with given indices."""
    groups: dict[tuple[str, Share], list[int]] = {}
    for index, key in enumerate(zip(dtypes, shares, strict=True)):
        groups.setdefault(key, []).append(index)
    tensors: dict[int, Tensor] = {}
    for (dtype, share), indices in groups.items():
        group = HostCopyGroup(store_of(indices), [shapes[index] for index in indices], dtype, share)
        tensors |= zip(indices, group.tensors, strict=True)
    return [tensors[index] for index in range(len(shapes))]
