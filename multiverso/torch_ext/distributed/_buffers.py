"""Memory for the chunks of calls over several hosts."""

from __future__ import annotations

from typing import Final

import torch

#: The bytes that leaders exchange at once, while the ranks of a host combine the next ones.
CHUNK_BYTES: Final = 1 << 22


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
        whole = self._free.pop() if self._free else torch.empty(CHUNK_BYTES, dtype=torch.uint8)
        return whole[:size].view(dtype)

    def give_back(self, array: torch.Tensor) -> None:
        """Allow others to use an array that `take` has returned."""
        whole = array.untyped_storage()
        if whole.nbytes() == CHUNK_BYTES:
            self._free.append(torch.empty(0, dtype=torch.uint8).set_(whole))
