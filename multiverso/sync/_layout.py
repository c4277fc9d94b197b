"""How the tensors of a model are divided into tables: by fragment and dtype."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from multiverso.sync._names import shortened, with_layout
from multiverso.sync._tensor import Tensor, TensorGroup


def fragments_of(tensors: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """Return the tensors in `count` consecutive fragments of about equally many elements.

    Raises
    ------
    ValueError
        If there are fewer tensors with elements than fragments.

    """
    if count > (filled := sum(tensor.size > 0 for tensor in tensors)):
        msg = f"fragments: expected at most {filled}, one for each parameter, received {count}"
        raise ValueError(msg)
    total = sum(tensor.size for tensor in tensors)
    fragments: list[list[Tensor]] = [[]]
    done, rest = 0, filled
    for tensor in tensors:
        # A fragment ends at its share of the elements, or to leave a tensor for each of the others.
        is_full = done * count >= total * len(fragments) or rest <= count - len(fragments)
        if (
            tensor.size
            and is_full
            and len(fragments) < count
            and any(t.size for t in fragments[-1])
        ):
            fragments.append([])
        fragments[-1].append(tensor)
        done += tensor.size
        rest -= tensor.size > 0
    return fragments


def tables_of(
    name: str, tensors: Sequence[Tensor], fragments: int
) -> list[list[tuple[str, list[Tensor]]]]:
    """Return for each fragment the names of its tables, and the tensors that each table holds."""
    if fragments == 1:
        full_name = with_layout(shortened(name), tensors)
        return [[(full_name, part) for part in by_dtype(tensors)]]
    return [
        [(with_layout(shortened(name, f" {index}"), fragment), part) for part in by_dtype(fragment)]
        for index, fragment in enumerate(fragments_of(tensors, fragments))
    ]


def by_dtype(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors by dtype, in order of first occurrence, for dtypes with elements."""
    groups: dict[np.dtype[Any], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return [group for group in groups.values() if any(tensor.size for tensor in group)]


def groups_of(tensors: Sequence[Tensor]) -> list[TensorGroup]:
    """Return the groups of the tensors, without duplicates."""
    return list({id(tensor.group): tensor.group for tensor in tensors if tensor.group}.values())
