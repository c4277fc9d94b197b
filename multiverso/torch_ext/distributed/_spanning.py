"""Groups whose ranks are on several hosts: shared memory inside a host, gloo between hosts.

The ranks of a host combine a chunk in shared memory. The first of them, its leader, exchanges the
results with the other leaders, while the host combines the next chunk, and adds all in the order of
a pairwise sum over the ranks. So the bits do not depend on how ranks are spread over hosts. If the
ranks of a host are no subtree of that sum, the leaders exchange the tensors of all ranks instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from ctypes import c_int32
from datetime import timedelta
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed import ReduceOp

from multiverso._native import capi
from multiverso.torch_ext.distributed import _plans as plans
from multiverso.torch_ext.distributed._calls import DTYPES, OPS, SharedMemory
from multiverso.torch_ext.distributed._rendezvous import Host

#: The bytes that are exchanged at once, while the ranks of a host combine the next ones.
_CHUNK_BYTES: Final = 1 << 22

_HALVES: Final = (torch.float16, torch.bfloat16)

#: What combines two tensors of 32 bits or more, and writes to the first.
_COMBINE: Final[dict[int, Callable[[torch.Tensor, torch.Tensor], object]]] = {
    capi.MV_OP_SUM: torch.Tensor.add_,
    capi.MV_OP_PRODUCT: torch.Tensor.mul_,
    capi.MV_OP_MIN: lambda a, b: torch.minimum(a, b, out=a),
    capi.MV_OP_MAX: lambda a, b: torch.maximum(a, b, out=a),
    capi.MV_OP_AND: operator.iand,
    capi.MV_OP_OR: operator.ior,
    capi.MV_OP_XOR: operator.ixor,
}


class Hosts:
    """Combines tensors over the ranks of several hosts.

    Parameters
    ----------
    hosts : list of Host
        All hosts of the group, in the order of their first ranks.
    rank : int
        This rank.
    memory : SharedMemory
        The session of the ranks of this host.
    store : torch.distributed.Store
        A store for the leaders.
    timeout : timedelta
        The limit of each exchange.

    """

    def __init__(
        self,
        hosts: list[Host],
        rank: int,
        memory: SharedMemory,
        store: distributed.Store,
        timeout: timedelta,
    ) -> None:
        self._memory = memory
        self._size = sum(len(host.ranks) for host in hosts)
        self._here = next(host.ranks for host in hosts if rank in host.ranks)
        self._sums_hosts = all(_is_subtree(host.ranks, self._size) for host in hosts)
        # The ranks whose terms each leader sends, in the places of the widest host.
        self._terms = [host.ranks[:1] if self._sums_hosts else host.ranks for host in hosts]
        self._width = max(map(len, self._terms))
        self._leaders: Any = None
        if rank == self._here[0]:
            gloo = distributed.ProcessGroupGloo
            place = [host.ranks[0] for host in hosts].index(rank)
            leaders = distributed.PrefixStore("leaders", store)
            self._leaders = gloo(leaders, place, len(hosts), timeout)

    def combine(self, tensor: torch.Tensor, op: Any) -> None:
        """Combine a contiguous tensor over all ranks, in place. Collective."""
        dtype = tensor.dtype
        values = tensor.float() if dtype in _HALVES else tensor
        flat = values.reshape(-1)
        averages = op == ReduceOp.AVG
        code = capi.MV_OP_SUM if averages else OPS[op]
        if dtype is torch.bool:
            code = {capi.MV_OP_SUM: capi.MV_OP_OR, capi.MV_OP_PRODUCT: capi.MV_OP_AND}.get(
                code, code
            )
            flat = flat.view(torch.uint8)
        begun: tuple[torch.Tensor, torch.Tensor, Any] | None = None
        for chunk in flat.split(_CHUNK_BYTES // flat.element_size()):
            started = self._begin(chunk, code)
            if begun is not None:
                self._end(*begun, code)
            begun = started
        if begun is not None:
            self._end(*begun, code)
        if averages:
            flat.div_(self._size, rounding_mode=None if flat.is_floating_point() else "trunc")
        if values is not tensor:
            tensor.copy_(values)

    def _begin(self, chunk: torch.Tensor, code: int) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Combine a chunk on this host, and start its exchange."""
        terms = chunk
        if self._sums_hosts:
            self._memory.aggregate(c_int32(code), c_int32(DTYPES[chunk.dtype]), chunk)
        else:
            terms = chunk.new_zeros((self._width, chunk.numel()))
            self._memory.run(plans.gather(list(terms[: len(self._here)]), chunk).call)
        if self._leaders is None:
            return chunk, terms, None
        # The leaders only copy, so they exchange bytes, since gloo lacks some types.
        found = terms.new_empty((len(self._terms), terms.numel()))
        sent = terms.reshape(1, -1).view(torch.uint8)
        parts = [row.view(torch.uint8) for row in found.split(1)]
        return chunk, found, self._leaders.allgather([parts], [sent])

    def _end(self, chunk: torch.Tensor, found: torch.Tensor, work: Any, code: int) -> None:
        """Add what the leaders have exchanged, and give it to all ranks of this host."""
        if work is not None:
            work.wait()
            terms = found.reshape(len(self._terms) * self._width, -1)
            of_ranks: list[torch.Tensor | None] = [None] * self._size
            for host, ranks in enumerate(self._terms):
                for place, rank in enumerate(ranks):
                    of_ranks[rank] = terms[host * self._width + place]
            total = _pairwise(of_ranks, _COMBINE[code])
            if total is not None:
                chunk.copy_(total)
        self._memory.run(plans.broadcast(chunk, 0).call)


def _pairwise(
    terms: Sequence[torch.Tensor | None], add: Callable[[torch.Tensor, torch.Tensor], object]
) -> torch.Tensor | None:
    """Return the pairwise sum of terms, of which some may be missing, in the memory of the first.

    The order is that of `multiverso.aggregate`.
    """
    if len(terms) == 1:
        return terms[0]
    half = 1 << (len(terms) - 1).bit_length() - 1
    left, right = _pairwise(terms[:half], add), _pairwise(terms[half:], add)
    if left is None or right is None:
        return right if left is None else left
    add(left, right)
    return left


def _is_subtree(ranks: Sequence[int], size: int) -> bool:
    """Return whether the pairwise sum over `size` ranks contains that over `ranks` alone."""

    def covers(first: int, end: int) -> bool:
        if (first, end) == (ranks[0], ranks[-1] + 1):
            return len(ranks) == end - first
        if end - first == 1:
            return False
        middle = first + (1 << (end - first - 1).bit_length() - 1)
        return covers(first, middle) if ranks[0] < middle else covers(middle, end)

    return covers(0, size)
