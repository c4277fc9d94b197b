"""NumPy arrays as tensors: synchronised in place if possible, otherwise through a copy."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import address, require_writable, view_of
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._master_copy import MasterCopy
from multiverso.sync._tensor import Tensor


class PlainArray:
    """A C-contiguous array of a table's dtype, on which the native pass works directly."""

    is_fixed = True

    def __init__(self, array: NDArray[Any]) -> None:
        self.dtype = TABLE_DTYPES[array.dtype.name]
        self.shape = array.shape
        self.size = array.size
        self._flat = array.reshape(-1)

    def values(self) -> NDArray[Any]:
        """Return a view of the array."""
        return self._flat

    def assign(self, values: NDArray[Any]) -> None:
        """Copy `values` to the array."""
        np.copyto(self._flat, values)

    def address(self) -> int:
        """Return the address of the array."""
        return address(self._flat)

    def settle(self) -> None:
        """Do nothing: the native pass has worked on the array."""


class CopiedArray:
    """An array that is not contiguous or not in native byte order: the pass works on a copy."""

    is_fixed = False

    def __init__(self, array: NDArray[Any]) -> None:
        self.dtype = TABLE_DTYPES[array.dtype.name]
        self.shape = array.shape
        self.size = array.size
        self._array = array
        self._copy = np.empty(array.shape, self.dtype)

    def values(self) -> NDArray[Any]:
        """Return the copy, updated from the array."""
        np.copyto(self._copy, self._array)
        return self._copy.reshape(-1)

    def assign(self, values: NDArray[Any]) -> None:
        """Copy `values` to the array."""
        np.copyto(self._array, values.reshape(self._array.shape))

    def address(self) -> int:
        """Return the address of the copy, updated from the array."""
        np.copyto(self._copy, self._array)
        return address(self._copy)

    def settle(self) -> None:
        """Copy the result of the pass to the array."""
        np.copyto(self._array, self._copy)


class HalfArray:
    """An array of half precision: the pass works on a master copy of it in float32."""

    is_fixed = False

    def __init__(self, array: NDArray[Any]) -> None:
        self.dtype = TABLE_DTYPES[array.dtype.newbyteorder("=").name]
        self.shape = array.shape
        self.size = array.size
        self._array = array
        self._master = MasterCopy(np.empty(array.shape, self.dtype))

    def values(self) -> NDArray[Any]:
        """Return a copy in float32."""
        return self._array.astype(self.dtype).reshape(-1)

    def assign(self, values: NDArray[Any]) -> None:
        """Keep `values` in the master copy, and set the array to them, rounded."""
        np.copyto(self._master.values, values.reshape(self._array.shape))
        self.settle()

    def address(self) -> int:
        """Return the address of the master copy, with the array's delta added to it."""
        self._master.add_delta(self._array.astype(self.dtype))
        return address(self._master.values)

    def settle(self) -> None:
        """Set the array to the master copy, rounded."""
        np.copyto(self._array, self._master.values, casting="same_kind")
        self._master.record(self._array.astype(self.dtype))


def tensor_of(array: NDArray[Any], what: str) -> Tensor:
    """Return the tensor over the memory of `array`; `what` names it in messages.

    Raises
    ------
    TypeError
        If no table can keep its dtype.
    ValueError
        If it is read-only, or two of its elements share memory.

    """
    native = array.dtype.newbyteorder("=")
    if native.name not in TABLE_DTYPES:
        known = ", ".join(TABLE_DTYPES)
        msg = f"{what}: expected one of the dtypes {known}, received {array.dtype}"
        raise TypeError(msg)
    require_writable(array, what)
    if native != TABLE_DTYPES[native.name]:
        return HalfArray(array)
    if array.flags.carray and array.dtype.isnative:
        return PlainArray(array)
    return CopiedArray(array)


def tensors_of(arrays: Iterable[object], what: str = "arrays") -> list[Tensor]:
    """Return the tensors over the memory of each of `arrays`.

    Raises
    ------
    TypeError, ValueError
        As for `tensor_of`; also if `arrays` is not iterable, if one of them cannot share its
        memory with NumPy, or if two of them share memory.

    """
    if isinstance(arrays, np.ndarray) or not isinstance(arrays, Iterable):
        msg = f"{what}: expected a list of arrays, received {type(arrays).__name__}"
        raise TypeError(msg)
    views = [view_of(array, f"{what}[{index}]") for index, array in enumerate(arrays)]
    tensors = [tensor_of(view, f"{what}[{index}]") for index, view in enumerate(views)]
    require_apart(views, what)
    return tensors


def require_apart(arrays: list[NDArray[Any]], what: str) -> None:
    """Raise ValueError if two of the arrays share memory, whose gain would be added twice."""
    bounds = sorted((*_bounds(array), index) for index, array in enumerate(arrays) if array.size)
    # The array among those so far that reaches furthest, and its end.
    reach, holder = 0, -1
    for begin, end, index in bounds:
        if begin < reach and np.shares_memory(arrays[index], arrays[holder]):
            first, second = sorted((index, holder))
            msg = (
                f"{what}: expected arrays with separate memory, but [{first}] and [{second}] share"
            )
            raise ValueError(msg)
        if end > reach:
            reach, holder = end, index


def _bounds(array: NDArray[Any]) -> tuple[int, int]:
    """Return the first and the end address of an array's memory."""
    low = high = address(array)
    for stride, n in zip(array.strides, array.shape, strict=True):
        low += min(0, stride * (n - 1))
        high += max(0, stride * (n - 1))
    return low, high + array.itemsize
