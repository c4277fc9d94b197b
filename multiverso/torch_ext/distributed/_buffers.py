"""Memory for the chunks of calls over several hosts."""

from __future__ import annotations

from typing import Final

import torch

#: The bytes that leaders exchange at once, while the ranks of a host combine the next ones.
CHUNK_BYTES: Final = 1 << 22

_PAGE_BYTES: Final = 4096
_ROOM_BYTES: Final = CHUNK_BYTES + _PAGE_BYTES


class Buffers:
    """Memory for chunks, which is used again: the system takes long to give a process new memory.

    The calls of a group use at most six of these chunks at once, and they keep them.
    """

    def __init__(self) -> None:
        self._free: list[torch.Tensor] = []

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return an array of at most a chunk, or a new one of more elements."""
        size = count * dtype.itemsize
        if size > CHUNK_BYTES:
            return torch.empty(count, dtype=dtype)
        whole = self._free.pop() if self._free else torch.empty(_ROOM_BYTES, dtype=torch.uint8)
        # The system takes half as long again to receive 64 bytes after the beginning of a page,
        # where large tensors of PyTorch are.
        begin = -whole.data_ptr() % _PAGE_BYTES
        return whole[begin : begin + size].view(dtype)

    def give_back(self, array: torch.Tensor) -> None:
        """Allow others to use an array that `take` has returned."""
        whole = array.untyped_storage()
        if whole.nbytes() == _ROOM_BYTES:
            self._free.append(torch.empty(0, dtype=torch.uint8).set_(whole))
