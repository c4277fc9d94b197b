"""Converts the arrays that users pass to C-contiguous arrays of a table's dtype, for the C library.

An array that needs no conversion is not copied. Invalid arguments raise before anything changes.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: The number of elements that are checked at once, few enough to stay in the cache.
_BLOCK: Final = 1 << 16

#: Returns an object that passes the address of a writable, C-contiguous array to C and keeps the
#: array's memory alive. The call is four times as fast as ``array.ctypes.data``.
pin: Final[Callable[[NDArray[Any]], "ctypes.Array[ctypes.c_char]"]] = (
    ctypes.c_char * 0
).from_buffer  # type: ignore[assignment]  # NumPy's stubs hide the buffer of an array


def as_array(data: object, what: str) -> NDArray[Any]:
    """Return `data` as an array, without a copy if it has a buffer, ``__array__`` or DLPack."""
    try:
        if hasattr(data, "__dlpack__") and not hasattr(data, "__array__"):
            return np.from_dlpack(data)
        return np.asarray(data)
    except ValueError as error:  # Rows of different lengths, for instance.
        msg = f"{what}: expected an array, received {type(data).__name__}: {error}"
        raise ValueError(msg) from error
    except (TypeError, RuntimeError, BufferError) as error:  # A tensor on a GPU, for instance.
        msg = f"{what}: expected an array, received {type(data).__name__}: {error}"
        raise TypeError(msg) from error


def native_order(data: Any) -> Any:
    """Return an array in the machine's order of bytes, which arrays of HDF5 may not have."""
    if not isinstance(data, np.ndarray) or data.dtype.isnative:
        return data
    return data.astype(data.dtype.newbyteorder("="))


def checked_input(
    data: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], what: str
) -> NDArray[Any]:
    """Return `data` as an array of one of `shapes` that NumPy casts to `dtype` as "same_kind"."""
    array = as_array(data, what)
    # NumPy makes a float64 array of an empty list; a table of integers accepts it nevertheless.
    empty_list = array.size == 0 and not isinstance(data, np.ndarray)
    if not (empty_list or np.can_cast(array.dtype, dtype, "same_kind")):
        msg = f"{what}: expected data that casts to {dtype} (same_kind), received {array.dtype}"
        raise TypeError(msg)
    if array.shape not in shapes:
        allowed = " or ".join(map(str, shapes))
        msg = f"{what}: expected shape {allowed}, received {array.shape}"
        if array.ndim == 0:
            msg += f"; a scalar is not repeated: write numpy.full({shapes[0]}, {array})"
        elif shapes[0] == (array.size,):
            msg += f"; write numpy.ravel({what})"
        raise ValueError(msg)
    if array.dtype.kind in "iu" and dtype.kind == "i" and not np.can_cast(array.dtype, dtype):
        _require_fit(array, dtype, what)
    return array


def _require_fit(array: NDArray[Any], dtype: np.dtype[Any], what: str) -> None:
    limits = np.iinfo(dtype)
    for value in (int(array.min()), int(array.max())) if array.size else ():
        if not limits.min <= value <= limits.max:
            raise ValueError(f"{what}: expected integers that fit {dtype}, received {value}")


def require_finite(array: NDArray[Any], what: str) -> None:
    """Raise a ValueError that names the first element of `array` that is NaN or infinite."""
    if array.dtype.kind in "iub":
        return
    flat = array.reshape(-1)
    # The check runs in blocks, so that no temporary array is as large as `array`.
    for begin in range(0, flat.size, _BLOCK):
        finite = np.isfinite(flat[begin : begin + _BLOCK])
        if not finite.all():
            first = begin + int(finite.argmin())
            index = ", ".join(map(str, np.unravel_index(first, array.shape)))
            raise ValueError(f"{what}[{index}]: expected a finite number, received {flat[first]}")


def as_input(
    data: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], what: str
) -> NDArray[Any]:
    """Return `data` as an aligned, C-contiguous array of `dtype`; `data` itself if possible."""
    if type(data) is np.ndarray and data.dtype is dtype and data.shape in shapes:
        flags = data.flags
        if flags.c_contiguous and flags.aligned:
            return data
    array = checked_input(data, dtype, shapes, what)
    return np.require(array, dtype, ("C", "A"))


def as_output(
    out: object,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    what: str = "out",
    also: np.dtype[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a buffer that the library can write to, and the user's array.

    Both are the same array if `out` is C-contiguous, aligned and in native byte order. Otherwise
    `copy_out` copies the buffer to the user's array, whose dtype may also be `also`.
    """
    target = view_of(out, what)
    if target.dtype is dtype and target.shape == shape and target.flags.carray:
        return target, target
    given = target.dtype.newbyteorder("=")
    if given not in (dtype, dtype if also is None else also):
        allowed = f"{dtype}" if also in (None, dtype) else f"{dtype} or {also}"
        raise TypeError(f"{what}: expected dtype {allowed}, received {target.dtype}")
    if target.shape != shape:
        raise ValueError(f"{what}: expected shape {shape}, received {target.shape}")
    require_writable(target, what)
    if given == dtype and target.flags.carray and target.dtype.isnative:
        return target, target  # As above, for an equal dtype.
    return np.empty(shape, dtype), target


def copy_out(buffer: NDArray[Any], target: NDArray[Any]) -> None:
    """Copy the results in a buffer to the user's array, if that is another one."""
    if buffer is not target:
        # A table's dtype can hold the results, so the cast is exact.
        np.copyto(target, buffer, casting="unsafe")


def as_shared(
    data: object,
    dtype: np.dtype[Any],
    shapes: tuple[tuple[int, ...], ...],
    what: str,
    is_output: bool = False,
) -> NDArray[Any]:
    """Return an array over the memory of `data` that the library can use without a copy."""
    array = view_of(data, what)
    if array.dtype != dtype:
        raise TypeError(f"{what}: expected dtype {dtype}, received {array.dtype}")
    if array.shape not in shapes:
        msg = f"{what}: expected shape {' or '.join(map(str, shapes))}, received {array.shape}"
        raise ValueError(msg)
    if not (array.flags.c_contiguous and array.flags.aligned):
        msg = f"{what}: expected an aligned C-contiguous array, received strides {array.strides}"
        raise ValueError(msg)
    if is_output:
        require_writable(array, what)
    return array


def require_writable(array: NDArray[Any], what: str) -> None:
    """Raise ValueError if `array` is read-only, or if a stride of 0 repeats elements."""
    if not array.flags.writeable:
        msg = f"{what}: expected an array that can be written to, received a read-only one"
        raise ValueError(msg)
    axes = zip(array.strides, array.shape, strict=True)
    if array.size and any(stride == 0 and length > 1 for stride, length in axes):
        msg = f"{what}: expected memory for each element, received strides {array.strides}"
        raise ValueError(msg)


def view_of(out: object, what: str) -> NDArray[Any]:
    """Return an array that shares the memory of `out`; raise TypeError if `out` cannot share it."""
    if isinstance(out, np.ndarray):
        return out
    array = as_array(out, what)
    second = as_array(out, what)
    # Two views of the memory of `out` have the same address, and two copies different addresses.
    is_copy = array.size and array.ctypes.data != second.ctypes.data
    if array.dtype == object or is_copy or not (array.size or _has_memory(out)):
        msg = f"{what}: expected an array, received {type(out).__name__}"
        if isinstance(out, list | tuple | int | float):
            msg += ", whose memory cannot be shared; make an array of it with numpy.array"
        raise TypeError(msg)
    return array


def _has_memory(out: object) -> bool:
    """Return whether `out` has an array interface or a buffer, which an empty list lacks."""
    if any(hasattr(out, name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return True
    try:
        memoryview(out).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def address(array: NDArray[Any]) -> int:
    """Return the address of the first element of `array`; the caller keeps the array alive."""
    return int(array.ctypes.data)


def numbers_in(ranges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers in ranges, each a first number and an end."""
    counts = ranges[:, 1] - ranges[:, 0]
    shifts = ranges[:, 0] - np.cumsum(counts) + counts
    return np.repeat(shifts, counts) + np.arange(counts.sum())


def memory_at(
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    keeper: object = None,
    *,
    writable: bool = True,
) -> NDArray[Any]:
    """Return an array over the memory at `address`, which the array keeps by its `keeper`."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    raw.keeper = keeper  # type: ignore[attr-defined]  # the array refers to `raw`
    memory = memoryview(raw)
    return np.frombuffer(memory if writable else memory.toreadonly(), dtype, count).reshape(shape)


def pointer(array: NDArray[Any]) -> object:
    """Return the address of `array` for C, also of one that is read-only, which `pin` rejects."""
    return pin(array) if array.flags.carray else ctypes.c_void_p(address(array))
