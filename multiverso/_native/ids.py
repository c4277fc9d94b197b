"""Converts the row ids, the keys and the texts that users pass to int64 arrays.

NumPy alone accepts too much: it treats ``[True, 2]`` as integers, converts ``[-1, 2**63]`` to
floats, and wraps large integers in a cast to int64. The C library checks that each id is a row of
the table; ids that do not fit into 64 bits are rejected here. Any int64 is a key.
"""

from collections.abc import Iterable
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import as_array

_INT64: Final = np.dtype(np.int64)
_INT64_MAX: Final = 2**63 - 1


def as_ids(ids: object, name: str, num_row: int | None = None) -> NDArray[np.int64]:
    """Return row ids, or keys if `num_row` is None, as a one-dimensional int64 array.

    Such an array is returned as it is, if its memory is contiguous and aligned.
    """
    if type(ids) is np.ndarray and ids.dtype is _INT64 and ids.ndim == 1:
        return ids if ids.flags.carray else np.require(ids, _INT64, ("C", "A"))
    if isinstance(ids, list | tuple):
        return _from_sequence(ids, name, num_row)
    if isinstance(ids, range):
        return _from_range(ids, name, num_row)
    array = as_array(ids, name)
    if array.ndim == 0:
        msg = f"{name}: expected a sequence of ints, received {ids!r} of type {type(ids).__name__}"
        if array.dtype.kind in "iu":
            msg += f"; for one, write [{array}]"
        raise TypeError(msg + ("" if num_row is not None else _advice_for_key(ids)))
    _require_integers(array, name, num_row)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, received shape {array.shape}")
    return np.require(array, _INT64, ("C", "A"))


def ids_of_any_shape(ids: object, name: str) -> NDArray[np.int64]:
    """Return keys of any shape as a C-contiguous int64 array of that shape."""
    if isinstance(ids, list | tuple):
        given = np.array(ids, dtype=object)
        return _from_sequence(given.reshape(-1).tolist(), name, None).reshape(given.shape)
    array = as_array(ids, name)
    _require_integers(array, name, None)
    return np.require(array, _INT64, ("C", "A"))


def hash_keys(values: Iterable[str | bytes]) -> NDArray[np.int64]:
    """Return an int64 key for each text, the same in every program and on every machine.

    The key is the first 8 bytes of the BLAKE2b hash (RFC 7693) of the text in UTF-8, as a
    little-endian number. Two of a million texts have the same key with a probability of 3e-8.

    Parameters
    ----------
    values : iterable of str or bytes
        The texts.

    Returns
    -------
    ndarray of int64, shape (n,)
        The keys.

    Examples
    --------
    >>> import multiverso as mv
    >>> mv.hash_keys(["user:1", "user:2"]).shape
    (2,)

    """
    if isinstance(values, str | bytes):
        raise TypeError(f"values: expected several texts, received one, {values!r}")
    from hashlib import blake2b  # It is here, because it would delay the start of every rank.

    digests = bytearray()
    given: Iterable[Any] = values
    for position, value in enumerate(given):
        if not isinstance(value, str | bytes):
            raise TypeError(f"values[{position}]: expected a str or bytes, received {value!r}")
        data = value.encode() if isinstance(value, str) else value
        digests += blake2b(data, digest_size=8).digest()
    return np.frombuffer(bytes(digests), "<i8").astype(np.int64)


def _from_sequence(
    ids: list[Any] | tuple[Any, ...], name: str, num_row: int | None
) -> NDArray[np.int64]:
    _require_ints(ids, name, num_row)
    try:
        return np.array(ids, dtype=_INT64)
    except OverflowError:
        for position, value in enumerate(ids):
            least = 0 if num_row is not None else -_INT64_MAX - 1
            if not least <= int(value) <= _INT64_MAX:
                _raise_out_of_range(name, position, int(value), num_row)
        raise


def _require_integers(array: NDArray[Any], name: str, num_row: int | None) -> None:
    """Raise TypeError if an array is not of integers, IndexError if one is above 2**63 - 1."""
    if array.dtype.kind not in "iu":
        sample = f" ({array.flat[0]!r} first)" if array.size else ""
        msg = f"{name}: expected integers, received {array.dtype}{sample}"
        if num_row is None and array.size:
            msg += _advice_for_key(array.flat[0])
        raise TypeError(msg)
    if array.dtype.kind == "u" and array.dtype.itemsize == _INT64.itemsize:
        positions = np.flatnonzero(array > _INT64_MAX)
        if positions.size:
            position = int(positions[0])
            _raise_out_of_range(name, position, int(array.flat[position]), num_row)


def _from_range(ids: range, name: str, num_row: int | None) -> NDArray[np.int64]:
    """Return a range as an array, checked first because it may not fit into memory or 64 bits."""
    if not ids:
        return np.empty(0, _INT64)
    start, step = ids[0], ids.step
    if num_row is None:
        return _from_sequence(list(ids), name, None)
    if not 0 <= start < num_row:
        _raise_out_of_range(name, 0, start, num_row)
    if not 0 <= ids[-1] < num_row:
        # The distance from `start` to the last row of the table in the direction of the range.
        inside = num_row - 1 - start if step > 0 else start
        position = inside // abs(step) + 1
        _raise_out_of_range(name, position, ids[position], num_row)
    count = len(ids)  # The step of a range of one row may not fit into 64 bits.
    return np.arange(count, dtype=_INT64) * (step if count > 1 else 1) + start


def _require_ints(ids: Iterable[object], name: str, num_row: int | None) -> None:
    types = set(map(type, ids))  # A few types are checked faster than many ids.
    wrong = tuple(t for t in types if issubclass(t, bool) or not issubclass(t, int | np.integer))
    if wrong:
        position, value = next((i, v) for i, v in enumerate(ids) if type(v) in wrong)
        msg = f"{name}[{position}]: expected an int, received {value!r}"
        raise TypeError(msg + ("" if num_row is not None else _advice_for_key(value)))


def _advice_for_key(value: object) -> str:
    is_text = isinstance(value, str | bytes)
    return "; keys of texts are made by multiverso.hash_keys" if is_text else ""


def _raise_out_of_range(name: str, position: int, value: int, num_row: int | None) -> NoReturn:
    expected = "an int64" if num_row is None else f"0 to {num_row - 1}"
    raise IndexError(f"{name}[{position}]: expected {expected}, received {value}")
