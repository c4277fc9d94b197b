"""Turns what users pass into what the C library takes: C-contiguous arrays of one dtype.

Nothing is copied that is right already. What is wrong is refused here, before anything moves.
"""

import ctypes
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native import capi

#: The dtypes of tables, by their code in the C API.
DTYPES: Final[dict[int, np.dtype[Any]]] = {
    capi.MV_FLOAT32: np.dtype(np.float32),
    capi.MV_FLOAT64: np.dtype(np.float64),
    capi.MV_INT32: np.dtype(np.int32),
    capi.MV_INT64: np.dtype(np.int64),
}

#: The other way round.
CODES: Final[dict[np.dtype[Any], int]] = {dtype: code for code, dtype in DTYPES.items()}

_MAX: Final = 2**63 - 1

#: Elements that are looked at together, few enough to stay in the cache.
_BLOCK: Final = 1 << 16

#: Pins the memory of a writable, C-contiguous array for as long as the result lives, and passes
#: its address to C: four times as fast as ``array.ctypes.data``.
pin: Final[Callable[[NDArray[Any]], "ctypes.Array[ctypes.c_char]"]] = (
    ctypes.c_char * 0
).from_buffer  # type: ignore[assignment]  # NumPy's stubs hide the buffer of an array


def table_dtype(dtype: object) -> tuple[int, np.dtype[Any]]:
    """Return code and NumPy dtype of a table's `dtype`; TypeError if there are no such tables."""
    names = ", ".join(str(known) for known in DTYPES.values())
    try:
        wanted = None if dtype is None else np.dtype(dtype)  # type: ignore[call-overload]
    except Exception:  # NumPy's parser lets through whatever its parts raise: SyntaxError, KeyError
        wanted = None
    for code, known in DTYPES.items() if wanted is not None else ():  # None equals float64
        if wanted == known:
            return code, known
    msg = f"dtype: expected one of {names}, received {dtype!r}"
    raise TypeError(msg)


def extent(value: object, what: str) -> int:
    """Return a size as an int; TypeError for bools and floats, ValueError outside 1 .. 2**63-1."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        msg = f"{what}: expected an int, received {value!r} of type {type(value).__name__}"
        raise TypeError(msg)
    number = operator.index(value)
    if not 1 <= number <= _MAX:
        msg = f"{what}: expected 1 to 2**63-1, received {number}"
        raise ValueError(msg)
    return number


def as_array(data: object, what: str) -> NDArray[Any]:
    """Return `data` as an array, without a copy where it has a buffer, an array or DLPack form."""
    try:
        if hasattr(data, "__dlpack__") and not hasattr(data, "__array__"):
            return np.from_dlpack(data)
        return np.asarray(data)
    except ValueError as error:  # rows of different lengths
        msg = f"{what}: expected an array, received {type(data).__name__}: {error}"
        raise ValueError(msg) from error
    except (TypeError, RuntimeError, BufferError) as error:  # on another device, needs a gradient
        msg = f"{what}: expected an array, received {type(data).__name__}: {error}"
        raise TypeError(msg) from error


def checked_input(
    data: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], what: str
) -> NDArray[Any]:
    """Return `data` as an array that may be cast to `dtype` and has one of `shapes`.

    Raises
    ------
    TypeError
        If same_kind casting does not lead to `dtype`.
    ValueError
        If the shape is none of `shapes`, or an integer does not fit `dtype`.

    """
    array = as_array(data, what)
    empty_list = array.size == 0 and not isinstance(data, np.ndarray)  # float64 to NumPy
    if not (empty_list or np.can_cast(array.dtype, dtype, "same_kind")):
        msg = f"{what}: expected data that casts to {dtype} (same_kind), received {array.dtype}"
        raise TypeError(msg)
    if array.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        msg = f"{what}: expected shape {wanted}, received {array.shape}"
        raise ValueError(msg)
    if array.dtype.kind in "iu" and dtype.kind == "i" and not np.can_cast(array.dtype, dtype):
        _require_fit(array, dtype, what)
    return array


def _require_fit(array: NDArray[Any], dtype: np.dtype[Any], what: str) -> None:
    limits = np.iinfo(dtype)
    for value in (int(array.min()), int(array.max())) if array.size else ():
        if not limits.min <= value <= limits.max:
            msg = f"{what}: expected integers that fit {dtype}, received {value}"
            raise ValueError(msg)


def require_finite(array: NDArray[Any], what: str) -> None:
    """Raise ValueError that names the first element of `array` that is NaN or infinite."""
    if array.dtype.kind != "f":
        return
    flat = array.reshape(-1)
    for begin in range(0, flat.size, _BLOCK):  # nothing of the size of the array is allocated
        finite = np.isfinite(flat[begin : begin + _BLOCK])
        if not finite.all():
            place = begin + int(finite.argmin())
            index = ", ".join(map(str, np.unravel_index(place, array.shape)))
            msg = f"{what}[{index}]: expected a finite number, received {flat[place]}"
            raise ValueError(msg)


def as_input(
    data: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], what: str
) -> NDArray[Any]:
    """Return `data` as an aligned, C-contiguous array of `dtype`: itself, if it is one.

    Raises what `checked_input` raises.
    """
    if type(data) is np.ndarray and data.dtype is dtype and data.shape in shapes:
        flags = data.flags
        if flags.c_contiguous and flags.aligned:
            return data
    array = checked_input(data, dtype, shapes, what)
    return np.require(array, dtype, ("C", "A"))


def as_output(
    out: object, dtype: np.dtype[Any], shape: tuple[int, ...], what: str = "out"
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the array that a call can write to, and the user's, which is the same if it can.

    Where `out` is not C-contiguous, or of the other byte order, the first is a buffer to be copied
    to the second by `np.copyto`. `what` names it in messages.

    Raises
    ------
    TypeError
        If `out` is no array and has no memory that one can share, or is of another dtype.
    ValueError
        If it has another shape or is read-only.

    """
    target = view_of(out, what)
    if target.dtype is dtype and target.shape == shape and target.flags.carray:
        return target, target
    if target.dtype.newbyteorder("=") != dtype:
        msg = f"{what}: expected dtype {dtype}, received {target.dtype}"
        raise TypeError(msg)
    if target.shape != shape:
        msg = f"{what}: expected shape {shape}, received {target.shape}"
        raise ValueError(msg)
    if not target.flags.writeable:
        msg = f"{what}: expected an array that can be written to, received a read-only one"
        raise ValueError(msg)
    if target.flags.carray and target.dtype.isnative:  # equal to the table's dtype, if not it
        return target, target
    if target.size and any(
        stride == 0 and n > 1 for stride, n in zip(target.strides, shape, strict=True)
    ):
        msg = f"{what}: expected memory for each element, received strides {target.strides}"
        raise ValueError(msg)
    return np.empty(shape, dtype), target


def view_of(out: object, what: str) -> NDArray[Any]:
    """Return an array over the memory of `out`; TypeError if it has none to share."""
    if isinstance(out, np.ndarray):
        return out
    array = as_array(out, what)
    again = as_array(out, what)
    # Two views of one memory begin at one address; two copies, both alive, cannot.
    is_copy = array.size and array.ctypes.data != again.ctypes.data
    if array.dtype == object or is_copy or not (array.size or _may_share(out)):
        msg = f"{what}: expected an array, received {type(out).__name__}"
        raise TypeError(msg)
    return array


def _may_share(out: object) -> bool:
    """Return whether `out`, which is empty, is something with memory: an empty list is not."""
    if any(hasattr(out, name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return True
    try:
        memoryview(out).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def address(array: NDArray[Any]) -> int:
    """Return where the data of `array` begin; the caller keeps it alive."""
    return int(array.ctypes.data)


def memory_at(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array of the memory at `address`, which may be written; the caller keeps it."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(raw), dtype, count).reshape(shape)


def pointer(array: NDArray[Any]) -> object:
    """Return the same for an argument of C, the fastest way; the caller keeps `array` alive."""
    return pin(array) if array.flags.carray else address(array)
