"""Converts NumPy's basic indices to rectangles of a table."""

import operator
from typing import Any, NamedTuple


class Part(NamedTuple):
    """A rectangle of a table, and the shape of its values; an array has one column."""

    first_row: int
    num_row: int
    first_col: int
    num_col: int
    shape: tuple[int, ...]


def part_of(index: Any, shape: tuple[int, ...]) -> Part:
    """Return the part of a table of that shape that NumPy's basic indexing selects.

    Raises
    ------
    TypeError
        If `index` contains anything but integers, slices and one Ellipsis.
    ValueError
        If the step of a slice is not 1.
    IndexError
        If an integer is out of range, or there are more indices than dimensions.

    """
    items = list(index) if isinstance(index, tuple) else [index]
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    missing = len(shape) - len(items) + len(dots)
    if missing < 0 or len(dots) > 1:
        msg = f"index: expected at most {len(shape)} indices, received {index!r}"
        raise IndexError(msg)
    place = dots[0] if dots else len(items)
    items[place : place + 1] = [slice(None)] * missing
    ranges, kept = [], []
    for item, length in zip(items, shape, strict=True):
        if isinstance(item, slice):
            first, end, step = item.indices(length)
            if step != 1:
                msg = f"index: expected slices of step 1, received {item!r}"
                raise ValueError(msg)
            count = max(0, end - first)
            kept.append(count)
        else:
            first, count = _position(item, length), 1
        ranges += [first, count]
    first_row, num_row, first_col, num_col = (*ranges, 0, 1)[:4]
    return Part(first_row, num_row, first_col, num_col, tuple(kept))


def element_of(index: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the row and the column of an element; the errors are those of `part_of`."""
    part = part_of(index, shape)
    if part.shape or Ellipsis in (index if isinstance(index, tuple) else (index,)):
        wanted = "an integer" if len(shape) == 1 else "a pair of integers"
        msg = f"index: expected {wanted}, received {index!r}"
        raise TypeError(msg)
    return part.first_row, part.first_col


def _position(item: Any, length: int) -> int:
    try:
        if isinstance(item, bool):
            raise TypeError
        position = operator.index(item)
    except TypeError:
        msg = f"index: expected integers and slices, received {type(item).__name__}"
        raise TypeError(msg) from None
    if not -length <= position < length:
        msg = f"index: expected {-length} to {length - 1}, received {position}"
        raise IndexError(msg)
    return position % length
