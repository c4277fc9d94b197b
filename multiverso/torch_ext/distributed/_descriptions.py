"""What the ranks of several hosts tell each other of a call, before it has an effect."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from multiverso._native import capi
from multiverso.torch_ext.distributed import _headers
from multiverso.torch_ext.distributed._calls import Call, SharedMemory, span
from multiverso.torch_ext.distributed._exchange import Exchange

#: Tensors up to this size travel with the descriptions of the calls, which saves an exchange.
SMALL_BYTES: Final = 4096


class Descriptions:
    """Exchanges the headers of a call, and small tensors, between all ranks.

    It keeps its buffers, because the exchange is short and each call begins with one.

    Parameters
    ----------
    memory : SharedMemory
        The session of the ranks of this host.
    exchange : Exchange
        What connects the hosts.
    hosts : list of list of int
        The ranks of each host.

    """

    def __init__(self, memory: SharedMemory, exchange: Exchange, hosts: list[list[int]]) -> None:
        self._memory, self._exchange = memory, exchange
        order = [rank for ranks in hosts for rank in ranks]
        # Where the blocks of the hosts, one after the other, have the row of each rank.
        self._row_of_rank = np.argsort(order)
        self._header_bytes = 8 * _headers.length(len(order))
        mine = torch.zeros(self._header_bytes + SMALL_BYTES, dtype=torch.uint8)
        found = mine.new_empty((len(order), mine.numel()))
        self._mine, self._found = mine.numpy(), found.numpy()
        self._header = self._mine[: self._header_bytes].view(np.int64)
        blocks = found.split([len(ranks) for ranks in hosts])
        here = blocks[exchange.place]
        rows = [span(row) for row in here]
        self._sent, self._received = [here] * len(blocks), blocks
        self._gather = Call(capi.MV_CALL_ALL_GATHER, mine.dtype, [span(mine)], rows)
        self._give = Call(capi.MV_CALL_BROADCAST, mine.dtype, [], [span(found)])
        self._shares = len(rows) > 1

    def swap(self, call: Call, small: torch.Tensor | None) -> torch.Tensor:
        """Return the small tensors of all ranks, by rank, as bytes. Waits for all ranks.

        Raises
        ------
        MismatchError
            If the ranks make different calls.

        """
        _headers.write(self._header, call, len(self._row_of_rank))
        if small is not None:
            end = self._header_bytes + small.numel()
            self._mine[self._header_bytes : end] = small.numpy()
        self._memory.run(self._gather)
        self._exchange.swap(self._sent, self._received).wait()
        if self._shares:
            self._memory.run(self._give)
        by_rank = self._found[self._row_of_rank]
        _headers.require_match(by_rank[:, : self._header_bytes].view(np.int64))
        return torch.from_numpy(by_rank[:, self._header_bytes :])
