"""Converts NumPy's basic indices to rectangles of a table."""

import operator
from types import EllipsisType
from typing import Any

_ALL = slice(None)


def part_of(index: Any, shape: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """Return the part of a table that NumPy's basic indexing selects, and the shape of its values.

    The part is the first row, the number of rows, the first column and the number of columns.
    """
    items = index if type(index) is tuple else (index,)
    if len(items) != len(shape):
        items = _expanded(items, shape)
    numbers: list[int] = []
    kept: list[int] = []
    for item, length in zip(items, shape, strict=True):
        if type(item) is slice:
            first, end, step = item.indices(length)
            if step != 1:
                raise ValueError(f"index: expected slices of step 1, received {item!r}")
            count = max(0, end - first)
            kept.append(count)
            numbers += (first, count)
        elif type(item) is EllipsisType:
            return part_of(_expanded(items, shape), shape)
        else:
            numbers += (_position(item, length), 1)
    if len(numbers) == 2:
        numbers += (0, 1)
    return numbers, tuple(kept)


def _expanded(items: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return one index for each dimension, with slices in place of an Ellipsis."""
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    missing = len(shape) - len(items) + len(dots)
    if missing < 0 or len(dots) > 1:
        raise IndexError(f"index: expected at most {len(shape)} indices, received {len(items)}")
    place = dots[0] if dots else len(items)
    return (*items[:place], *(_ALL,) * missing, *items[place + 1 :])


def element_of(index: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the row and column of an element, whose index has an integer for each dimension."""
    items = index if type(index) is tuple else (index,)
    if len(items) != len(shape):
        wanted = "an integer" if len(shape) == 1 else "a pair of integers"
        raise TypeError(f"index: expected {wanted}, received {index!r}")
    row = _position(items[0], shape[0])
    return row, _position(items[1], shape[1]) if len(items) == 2 else 0


def _position(item: Any, length: int) -> int:
    if type(item) is int and 0 <= item < length:
        return item
    try:
        if isinstance(item, bool):
            raise TypeError
        position = operator.index(item)
    except TypeError:
        raise TypeError(f"index: expected an integer, received {type(item).__name__}") from None
    if not -length <= position < length:
        raise IndexError(f"index: expected {-length} to {length - 1}, received {position}")
    return position % length


def require_no_row_ids(row_ids: object) -> None:
    """Raise TypeError if a call with an index also names rows."""
    if row_ids is not None:
        raise TypeError("row_ids: expected None with an index, received both")
