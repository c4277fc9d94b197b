"""Converts the row ids that users pass to int64 arrays.

NumPy alone accepts too much: it treats ``[True, 2]`` as integers, converts ``[-1, 2**63]`` to
floats, and wraps large integers in a cast to int64. The C library checks that each id is a row of
the table; ids that do not fit into 64 bits are rejected here.
"""

from collections.abc import Iterable
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import as_array

_INT64: Final = np.dtype(np.int64)
_INT64_MAX: Final = 2**63 - 1


def as_row_ids(row_ids: object, num_row: int) -> NDArray[np.int64]:
    """Return `row_ids` as a C-contiguous int64 array of one dimension, without a copy if possible.

    Raises
    ------
    TypeError
        If `row_ids` contains anything but integers, such as bools and floats.
    ValueError
        If `row_ids` does not have one dimension.
    IndexError
        If an id does not fit into 64 bits, or `row_ids` is a range with ids outside the table.

    """
    if type(row_ids) is np.ndarray and row_ids.dtype is _INT64 and row_ids.ndim == 1:
        return row_ids if row_ids.flags.carray else np.require(row_ids, _INT64, ("C", "A"))
    if isinstance(row_ids, list | tuple):
        return _from_sequence(row_ids, num_row)
    if isinstance(row_ids, range):
        return _from_range(row_ids, num_row)
    array = as_array(row_ids, "row_ids")
    if array.ndim == 0:
        msg = f"row_ids: expected a sequence of ints, received {type(row_ids).__name__}"
        raise TypeError(msg)
    if array.dtype.kind not in "iu":
        sample = f" ({array.flat[0]!r} first)" if array.size else ""
        msg = f"row_ids: expected integers, received {array.dtype}{sample}"
        raise TypeError(msg)
    if array.ndim != 1:
        msg = f"row_ids: expected one dimension, received shape {array.shape}"
        raise ValueError(msg)
    if array.dtype.kind == "u" and array.dtype.itemsize == _INT64.itemsize:
        positions = np.flatnonzero(array > _INT64_MAX)
        if positions.size:
            _raise_out_of_range(int(positions[0]), int(array[positions[0]]), num_row)
    return np.require(array, _INT64, ("C", "A"))


def _from_sequence(row_ids: list[Any] | tuple[Any, ...], num_row: int) -> NDArray[np.int64]:
    _require_ints(row_ids)
    try:
        return np.array(row_ids, dtype=_INT64)
    except OverflowError:
        for position, value in enumerate(row_ids):
            if not 0 <= int(value) <= _INT64_MAX:
                _raise_out_of_range(position, int(value), num_row)
        raise


def _from_range(row_ids: range, num_row: int) -> NDArray[np.int64]:
    """Return a range as an array, checked first because it may not fit into memory or 64 bits."""
    if not row_ids:
        return np.empty(0, _INT64)
    start, step = row_ids[0], row_ids.step
    if not 0 <= start < num_row:
        _raise_out_of_range(0, start, num_row)
    if not 0 <= row_ids[-1] < num_row:
        # The distance from `start` to the last row of the table in the direction of the range.
        inside = num_row - 1 - start if step > 0 else start
        position = inside // abs(step) + 1
        _raise_out_of_range(position, row_ids[position], num_row)
    count = len(row_ids)  # The step of a range of one row may not fit into 64 bits.
    return np.arange(count, dtype=_INT64) * (step if count > 1 else 1) + start


def _require_ints(row_ids: Iterable[object]) -> None:
    types = set(map(type, row_ids))  # A few types are checked faster than many ids.
    wrong = tuple(t for t in types if issubclass(t, bool) or not issubclass(t, int | np.integer))
    if wrong:
        position, value = next((i, v) for i, v in enumerate(row_ids) if type(v) in wrong)
        msg = f"row_ids[{position}]: expected an int, received {value!r}"
        raise TypeError(msg)


def _raise_out_of_range(position: int, value: int, num_row: int) -> NoReturn:
    msg = f"row_ids[{position}]: expected 0 to {num_row - 1}, received {value}"
    raise IndexError(msg)
