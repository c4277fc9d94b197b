"""NumPy arrays as tensors: synchronized in place if possible, otherwise through a copy."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import address, require_writable, view_of
from multiverso._native.dtypes import TABLE_DTYPES, require_table_dtype
from multiverso.sync._movable import MovableTensor
from multiverso.sync._shares import share_of_parameter
from multiverso.sync._table_copy import Share
from multiverso.sync._tensor import Tensor, TensorGroup


class PlainArray:
    """A C-contiguous array of a table's dtype, whose memory or copy the native pass changes."""

    def __init__(self, array: NDArray[Any], group: TensorGroup | None = None) -> None:
        self.group = group
        self.is_fixed = group is None
        self.dtype = TABLE_DTYPES[array.dtype.name]
        self.shape = array.shape
        self.size = array.size
        self._flat = array.reshape(-1)
        self._address = address(self._flat)

    def values(self) -> NDArray[Any]:
        """Return a view of the array."""
        return self._flat

    def assign(self, values: NDArray[Any]) -> None:
        """Copy `values` to the array."""
        np.copyto(self._flat, values)

    def address(self) -> int:
        """Return the address of the array."""
        return self._address

    def settle(self) -> None:
        """Do nothing: the native pass has changed the array, which a group copies back."""


class CopiedArray(MovableTensor):
    """An array of half precision, not contiguous, not in native byte order, or with a share."""

    def __init__(self, array: NDArray[Any], share: Share = 1.0) -> None:
        super().__init__(array.shape, array.dtype.newbyteorder("=").name, share)
        self._array = array

    def locate(self) -> None:
        """Return None: the native pass cannot work on the array."""

    def read(self) -> NDArray[Any]:
        """Return the array as the table's dtype."""
        return self._array.astype(self.dtype, copy=False)

    def write(self, values: NDArray[Any]) -> None:
        """Copy `values` to the array, rounded to the dtype of the array."""
        np.copyto(self._array, values, casting="same_kind")


def tensor_of(array: NDArray[Any], what: str, average: bool = False) -> Tensor:
    """Return the tensor over the memory of `array`; `what` names it in messages."""
    native = array.dtype.newbyteorder("=")
    require_table_dtype(native.name, what)
    require_writable(array, what)
    share = share_of_parameter(native.name, average)
    if share == 1 and array.flags.carray and array.dtype == TABLE_DTYPES[native.name]:
        return PlainArray(array)
    return CopiedArray(array, share)


def tensors_of(
    arrays: Iterable[object], what: str = "arrays", *, average: bool = False
) -> list[Tensor]:
    """Return the tensors over the memory of each of `arrays`, of which no two may share memory."""
    if isinstance(arrays, np.ndarray | Mapping) or not isinstance(arrays, Iterable):
        msg = f"{what}: expected a list of arrays, received {type(arrays).__name__}"
        if isinstance(arrays, np.ndarray):
            msg += f"; for one array, write [{what}]"
        elif isinstance(arrays, Mapping):
            msg += f"; write {what}.values()"
        raise TypeError(msg)
    # A view as a plain array, because a numpy.matrix always has two dimensions.
    views = [
        view_of(array, f"{what}[{index}]").view(np.ndarray) for index, array in enumerate(arrays)
    ]
    tensors = [tensor_of(view, f"{what}[{index}]", average) for index, view in enumerate(views)]
    require_apart(views, what)
    return tensors


def require_apart(
    arrays: list[NDArray[Any]], what: str, names: Sequence[str] | None = None
) -> None:
    """Raise ValueError if two arrays share memory, whose delta a sync would add twice."""
    bounds = sorted((*_bounds(array), index) for index, array in enumerate(arrays) if array.size)
    # The highest end of the arrays before, and the index of the array with that end.
    highest_end, holder = 0, -1
    for begin, end, index in bounds:
        if begin < highest_end and np.shares_memory(arrays[index], arrays[holder]):
            first, second = sorted((index, holder))
            one, other = (names[i] if names else f"[{i}]" for i in (first, second))
            msg = f"{what}: expected arrays with separate memory, but {one} and {other} share"
            raise ValueError(msg)
        if end > highest_end:
            highest_end, holder = end, index


def _bounds(array: NDArray[Any]) -> tuple[int, int]:
    """Return the addresses of the first byte of an array's memory and of the byte after it."""
    low = high = address(array)
    for stride, extent in zip(array.strides, array.shape, strict=True):
        low += min(0, stride * (extent - 1))
        high += max(0, stride * (extent - 1))
    return low, high + array.itemsize
