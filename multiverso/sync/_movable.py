"""Parameters that the native pass changes in place where possible, otherwise through a copy.

The memory may move between syncs, because a framework may replace an array or change its device.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._table_copy import Share, TableCopy
from multiverso.sync._tensor import Tensor, TensorGroup


class MovableTensor:
    """Base of tensors whose memory may move; a subclass accesses the parameters of a framework."""

    is_fixed = False

    def __init__(self, shape: tuple[int, ...], dtype: str, share: Share = 1.0) -> None:
        self.dtype = TABLE_DTYPES[dtype]
        self.shape = shape
        self.size = math.prod(shape)
        #: Whether the parameters cannot hold the values of the table; see `TableCopy`.
        self.needs_table_copy = share != 1 or self.dtype.name != dtype
        #: The group through which the tensor is accessed.
        self.group: TensorGroup | None = None
        self._share = share
        self._copy: NDArray[Any] | None = None
        self._table_copy: TableCopy | None = None
        self._in_place = False

    def locate(self) -> int | None:
        """Return the address at which the native pass may change the parameters, or None."""
        raise NotImplementedError

    def read(self) -> NDArray[Any]:
        """Return a view or a copy of the parameters in their shape, as the table's dtype."""
        raise NotImplementedError

    def read_into(self, copy: NDArray[Any]) -> None:
        """Copy the parameters to `copy`."""
        np.copyto(copy, self.read())

    def write(self, values: NDArray[Any]) -> None:
        """Set the parameters to `values`, rounded to their dtype."""
        raise NotImplementedError

    def replace(self, values: NDArray[Any]) -> None:
        """Set the parameters to `values`, in new memory if the program may use the old memory."""
        self.write(values)

    def mark_changed(self) -> None:
        """Tell the framework that the native pass has changed the parameters in place."""

    def allocate(self) -> NDArray[Any]:
        """Return memory for a copy, of the table's dtype."""
        return np.empty(self.shape, self.dtype)

    def values(self) -> NDArray[Any]:
        """Return a view or a copy of the parameters in one dimension."""
        return np.ascontiguousarray(self.read()).reshape(-1)

    def assign(self, values: NDArray[Any]) -> None:
        """Set the parameters, and the table copy, to `values`."""
        shaped = values.reshape(self.shape)
        if self.needs_table_copy:
            np.copyto(self._make_copy(), shaped)
        self.replace(shaped)
        self._record()

    def address(self) -> int:
        """Return the address of the parameters, or of a copy that the native pass can change."""
        address = self.locate()
        self._in_place = address is not None
        if address is not None:
            return address
        copy = self._make_copy()
        if self._table_copy is None:
            self.read_into(copy)
        else:
            self._table_copy.add_delta(self.read())
        return arrays.address(copy)

    def settle(self) -> None:
        """Set the parameters to the copy, unless the native pass has changed them in place."""
        if self._in_place:
            self.mark_changed()
            return
        self.write(self._make_copy())
        self._record()

    def _make_copy(self) -> NDArray[Any]:
        if self._copy is None:
            self._copy = self.allocate()
            if self.needs_table_copy:
                self.read_into(self._copy)
                self._table_copy = TableCopy(self._copy, self._share)
        return self._copy

    def _record(self) -> None:
        if self._table_copy is not None:
            self._table_copy.record(self.read())


class MovableGroup:
    """Base of groups of one dtype; the native pass changes all tensors in place, or none."""

    def __init__(self, tensors: list[Any]) -> None:
        self.tensors: Sequence[Any] = tensors
        self.addresses: list[int] | None = None

    def values(self) -> list[NDArray[Any]]:
        """Return the values of each tensor."""
        return [tensor.values() for tensor in self.tensors]

    def load(self) -> None:
        """Do nothing: the native pass measures the deltas."""

    def gather(self) -> None:
        """Set `addresses` to the current addresses of the tensors, or to None."""
        raise NotImplementedError

    def scatter(self) -> None:
        """Drop the addresses, because the tensors may move before the next sync."""
        self.addresses = None


def grouped(tensors: Iterable[Any], make_group: Callable[[list[Any]], TensorGroup]) -> list[Tensor]:
    """Return `tensors`, after grouping those of one dtype that need no table copy."""
    all_tensors = list(tensors)
    by_dtype: dict[np.dtype[Any], list[Any]] = {}
    for tensor in all_tensors:
        if not tensor.needs_table_copy:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
    for members in by_dtype.values():
        group = make_group(members)
        for tensor in members:
            tensor.group = group
    return all_tensors
