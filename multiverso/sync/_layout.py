"""How the tensors of a model are divided into tables, by fragment and dtype, and their names."""

import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from multiverso.sync._tensor import Tensor, TensorGroup

#: The most bytes of the user's name and of a shape; together they fit into the name of a table.
_NAME_BYTES: Final = 24
_SHAPE_BYTES: Final = 36


def fragments_of(tensors: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """Return the tensors in `count` consecutive fragments of about equally many elements."""
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


class TablePart(NamedTuple):
    """The tensors of one dtype that have a table together, and the name of the table."""

    name: str
    tensors: list[Tensor]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tensors."""
        return self.tensors[0].dtype


def tables_of(name: str, tensors: Sequence[Tensor], fragments: int) -> list[list[TablePart]]:
    """Return the parts of each fragment that have tables of their own."""
    divided = [tensors] if fragments == 1 else fragments_of(tensors, fragments)
    found = []
    for index, fragment in enumerate(divided):
        suffix = "" if fragments == 1 else f" {index}"
        full_name = with_layout(shortened(name, suffix), fragment)
        found.append([TablePart(full_name, part) for part in by_dtype(fragment)])
    return found


def by_dtype(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors by dtype, in order of first occurrence, for dtypes with elements."""
    groups: dict[np.dtype[Any], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return [group for group in groups.values() if any(tensor.size for tensor in group)]


def groups_of(tensors: Sequence[Tensor]) -> list[TensorGroup]:
    """Return the groups of the tensors, without duplicates."""
    return list({id(tensor.group): tensor.group for tensor in tensors if tensor.group}.values())


def shortened(name: str, suffix: str = "") -> str:
    """Return a name with a suffix in at most 24 bytes, where a checksum replaces what is lost."""
    encoded = name.encode()
    room = _NAME_BYTES - len(suffix)
    if len(encoded) <= room:
        return name + suffix
    checksum = f"~{zlib.crc32(encoded):08x}"
    return encoded[: room - len(checksum)].decode(errors="ignore") + checksum + suffix


def with_layout(name: str, tensors: Sequence[Tensor]) -> str:
    """Return a name for tables that differs if shapes do: sizes alone tell 2 + 3 not from 3 + 2."""
    if len(tensors) == 1:
        shape = f"shape {tensors[0].shape}"
        if len(shape) <= _SHAPE_BYTES:
            return f"{name}, {shape}"
    layout = ",".join(f"{tensor.dtype}{tensor.shape}" for tensor in tensors)
    return f"{name} ({len(tensors)} tensors, layout {zlib.crc32(layout.encode()):08x})"
