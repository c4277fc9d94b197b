"""The names of the tables that keep the tensors of a model."""

import zlib
from collections.abc import Sequence
from typing import Final

from multiverso.sync._tensor import Tensor

#: The most bytes of the user's name and of a shape; together they fit into the name of a table.
_NAME_BYTES: Final = 24
_SHAPE_BYTES: Final = 36


def shortened(name: str, suffix: str = "") -> str:
    """Return a name with a suffix, in at most 24 bytes.

    The names of models and layers may be longer, and those of two layers may differ only at their
    end. So what a longer name loses is replaced with its checksum.
    """
    encoded = name.encode()
    room = _NAME_BYTES - len(suffix)
    if len(encoded) <= room:
        return name + suffix
    checksum = f"~{zlib.crc32(encoded):08x}"
    return encoded[: room - len(checksum)].decode(errors="ignore") + checksum + suffix


def with_layout(name: str, tensors: Sequence[Tensor]) -> str:
    """Return a name for the tables that differs between ranks whose tensors differ.

    `name` has at most 24 bytes. The size of a table alone distinguishes neither 2 + 3 parameters
    from 3 + 2, nor a matrix from its transpose.
    """
    if len(tensors) == 1:
        shape = f"shape {tensors[0].shape}"
        if len(shape) <= _SHAPE_BYTES:
            return f"{name}, {shape}"
    layout = ",".join(f"{tensor.dtype}{tensor.shape}" for tensor in tensors)
    return f"{name} ({len(tensors)} tensors, layout {zlib.crc32(layout.encode()):08x})"
