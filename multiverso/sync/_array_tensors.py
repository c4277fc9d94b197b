"""Arrays as tensors to be kept in step: in place where they can be, through a copy elsewhere."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import CODES, address, table_dtype, view_of
from multiverso.sync._tensor import Tensor

#: Half precision, by its name (bfloat16 is a dtype of the package ml_dtypes): summed up in float32.
HALVES: Final = ("float16", "bfloat16")

_FLOAT32: Final = np.dtype(np.float32)


class PlainArray:
    """A C-contiguous array of a table's dtype: the pass works on it."""

    is_fixed = True

    def __init__(self, array: NDArray[Any]) -> None:
        self.dtype = table_dtype(array.dtype)[1]
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
        """Return the array's own address."""
        return address(self._flat)

    def settle(self) -> None:
        """Do nothing: it is in the array."""


class CopiedArray:
    """An array with gaps, or of the other byte order: the pass works on a copy of it."""

    is_fixed = False

    def __init__(self, array: NDArray[Any]) -> None:
        self.dtype = table_dtype(array.dtype.newbyteorder("="))[1]
        self.shape = array.shape
        self.size = array.size
        self._array = array
        self._copy = np.empty(array.shape, self.dtype)

    def values(self) -> NDArray[Any]:
        """Return the copy, brought up to date."""
        np.copyto(self._copy, self._array)
        return self._copy.reshape(-1)

    def assign(self, values: NDArray[Any]) -> None:
        """Copy `values` to the array."""
        np.copyto(self._array, values.reshape(self._array.shape))

    def address(self) -> int:
        """Return the address of the copy, brought up to date."""
        np.copyto(self._copy, self._array)
        return address(self._copy)

    def settle(self) -> None:
        """Copy the new values to the array."""
        np.copyto(self._array, self._copy)


class HalfArray:
    """An array of half precision: the pass works on a master copy of it in float32.

    What rounding takes from the master copy is nothing that this worker has learned. So the copy
    is given what the array has gained since it was last written, not the array's value.
    """

    is_fixed = False
    dtype = _FLOAT32

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape = array.shape
        self.size = array.size
        self._array = array
        self._master = np.empty(array.shape, _FLOAT32)
        self._last = np.empty(array.shape, _FLOAT32)  # of the array

    def values(self) -> NDArray[Any]:
        """Return a copy in float32."""
        return self._array.astype(_FLOAT32).reshape(-1)

    def assign(self, values: NDArray[Any]) -> None:
        """Keep `values` in the master copy, and set the array to what it can hold of them."""
        np.copyto(self._master, values.reshape(self._array.shape))
        self.settle()

    def address(self) -> int:
        """Return the address of the master copy, with what the array has gained."""
        now = self._array.astype(_FLOAT32)
        self._master += now - self._last
        self._last = now
        return address(self._master)

    def settle(self) -> None:
        """Set the array to what it can hold of the master copy."""
        np.copyto(self._array, self._master, casting="same_kind")
        np.copyto(self._last, self._array)


def tensor_of(array: NDArray[Any], what: str) -> Tensor:
    """Return the tensor over the memory of `array`; `what` names it in messages.

    Raises
    ------
    TypeError
        If it is of a dtype that no table can hold.
    ValueError
        If it cannot be written to, or has elements that share memory.

    """
    native = array.dtype.newbyteorder("=")
    is_half = native.name in HALVES
    if not is_half and native not in CODES:
        known = ", ".join([*HALVES, *(dtype.name for dtype in CODES)])
        msg = f"{what}: expected one of the dtypes {known}, received {array.dtype}"
        raise TypeError(msg)
    if not array.flags.writeable:
        msg = f"{what}: expected an array that can be written to, received a read-only one"
        raise ValueError(msg)
    pairs = zip(array.strides, array.shape, strict=True)
    if array.size and any(stride == 0 and n > 1 for stride, n in pairs):
        msg = f"{what}: expected memory for each element, received strides {array.strides}"
        raise ValueError(msg)
    if is_half:
        return HalfArray(array)
    if array.flags.carray and array.dtype.isnative:
        return PlainArray(array)
    return CopiedArray(array)


def tensors_of(arrays: Iterable[object], what: str = "arrays") -> list[Tensor]:
    """Return the tensors over the memory of each of `arrays`.

    Raises
    ------
    TypeError, ValueError
        As `tensor_of`, or if `arrays` is no list, something in it has no memory to share with
        NumPy, or two of them share memory.

    """
    if isinstance(arrays, np.ndarray) or not isinstance(arrays, Iterable):
        msg = f"{what}: expected a list of arrays, received {type(arrays).__name__}"
        raise TypeError(msg)
    views = [view_of(array, f"{what}[{index}]") for index, array in enumerate(arrays)]
    tensors = [tensor_of(view, f"{what}[{index}]") for index, view in enumerate(views)]
    require_apart(views, what)
    return tensors


def require_apart(arrays: list[NDArray[Any]], what: str) -> None:
    """Raise ValueError if two of the arrays share memory: its gain would be added twice."""
    bounds = sorted((*_bounds(array), index) for index, array in enumerate(arrays) if array.size)
    reach, holder = 0, -1  # of those before
    for begin, end, index in bounds:
        if begin < reach and np.shares_memory(arrays[index], arrays[holder]):
            first, second = sorted((index, holder))
            msg = f"{what}: expected memory of its own for each, but [{first}] and [{second}] share"
            raise ValueError(msg)
        if end > reach:
            reach, holder = end, index


def _bounds(array: NDArray[Any]) -> tuple[int, int]:
    """Return where the memory of an array begins and ends."""
    low = high = address(array)
    for stride, n in zip(array.strides, array.shape, strict=True):
        low += min(0, stride * (n - 1))
        high += max(0, stride * (n - 1))
    return low, high + array.itemsize
