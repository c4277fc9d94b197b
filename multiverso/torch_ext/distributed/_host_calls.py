"""Calls over several hosts, whose ranks share memory inside each host.

The first rank of a host, its leader, exchanges with the other leaders, and gives its host what it
has received. The ranks compare what they call before it has an effect, so that a mismatch is an
error on all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from ctypes import c_byte, c_int32
from typing import Final

import torch

from multiverso._native import capi
from multiverso.torch_ext.distributed import _headers
from multiverso.torch_ext.distributed._calls import DTYPES, Call, SharedMemory, Span, span
from multiverso.torch_ext.distributed._combining import combine_pairwise
from multiverso.torch_ext.distributed._exchange import Exchange

#: The bytes that leaders exchange at once, while the ranks of a host combine the next ones.
_CHUNK_BYTES: Final = 1 << 21

#: Tensors up to this size travel with the descriptions of the calls, which saves an exchange.
_SMALL_BYTES: Final = 4096

_HALVES: Final = (torch.float16, torch.bfloat16)


class HostCalls:
    """Makes calls. All ranks make the same calls in the same order, each in one thread at a time.

    Parameters
    ----------
    memory : SharedMemory
        The session of the ranks of this host.
    exchange : Exchange
        What connects the hosts.
    hosts : list of list of int
        The ranks of each host.
    rank : int
        This rank.

    """

    def __init__(
        self, memory: SharedMemory, exchange: Exchange, hosts: list[list[int]], rank: int
    ) -> None:
        self._memory, self._exchange = memory, exchange
        self._hosts, self._here, self._rank = hosts, hosts[exchange.place], rank
        self._order = [rank for ranks in hosts for rank in ranks]
        # Where the blocks of the hosts, one after the other, have the row of each rank.
        self._row_of_rank = torch.tensor(self._order).argsort()

    def make(self, call: Call) -> None:
        """Make a call.

        Raises
        ------
        MismatchError
            If ranks make different calls. The next call can succeed.
        PeerLostError, OperationTimeout
            If a rank is lost or late. The ranks are then in the middle of different calls.

        """
        small = _small(call)
        headers, contents = self._describe(_headers.header_of(call, len(self._order)), small)
        _headers.require_match(headers)
        if small is not None:
            self._combine_small(contents, _tensor(call.received[0], call.dtype), call.op)
            return
        kinds: Mapping[int, Callable[[Call], None]] = {
            capi.MV_CALL_AGGREGATE: self._aggregate,
            capi.MV_CALL_BROADCAST: self._broadcast,
            capi.MV_CALL_ALL_GATHER: self._all_gather,
            capi.MV_CALL_REDUCE_SCATTER: self._reduce_scatter,
            capi.MV_CALL_ALL_TO_ALL: self._all_to_all,
            capi.MV_CALL_BARRIER: lambda _: None,  # The ranks have met to compare their calls.
        }
        kinds[call.kind](call)

    def _describe(
        self, header: torch.Tensor, small: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the headers and the small tensors of all ranks, by rank. Waits for all ranks."""
        size = header.numel() * header.element_size()
        mine = torch.zeros(size + _SMALL_BYTES, dtype=torch.uint8)
        mine[:size] = header.view(torch.uint8)
        if small is not None:
            mine[size : size + small.numel()] = small
        found = mine.new_empty((len(self._order), mine.numel()))
        blocks = found.split([len(ranks) for ranks in self._hosts])
        here = blocks[self._exchange.place]
        rows = [span(row) for row in here]
        self._memory.run(Call(capi.MV_CALL_ALL_GATHER, mine.dtype, [span(mine)], rows))
        self._exchange.swap([here] * len(blocks), blocks).wait()
        self._give_host(found)
        by_rank = found[self._row_of_rank]
        return by_rank[:, :size].contiguous().view(header.dtype), by_rank[:, size:]

    def _give_host(self, tensor: torch.Tensor, root: int = 0) -> None:
        """Give the ranks of this host the tensor of one of them."""
        if len(self._here) > 1:
            whole = span(tensor.flatten().view(torch.uint8))
            self._memory.run(Call(capi.MV_CALL_BROADCAST, torch.uint8, [], [whole], root=root))

    # ---- Calls that combine tensors

    def _combine_small(self, contents: torch.Tensor, tensor: torch.Tensor, op: int | None) -> None:
        """Combine the tensors of all ranks, which this rank has, in the order of larger ones."""
        size = tensor.numel() * tensor.element_size()
        terms = [_wide(row[:size].clone().view(tensor.dtype)) for row in contents]
        code = _without_mean(op)
        sums = [combine_pairwise([terms[rank] for rank in ranks], code) for ranks in self._hosts]
        self._store(combine_pairwise(sums, code), tensor, op)

    def _aggregate(self, call: Call) -> None:
        self._combine(_tensor(call.received[0], call.dtype), call.op)

    def _reduce_scatter(self, call: Call) -> None:
        whole = torch.cat([_tensor(part, call.dtype) for part in call.sent])
        self._combine(whole, call.op)
        mine = whole.split([part.size for part in call.sent])[self._rank]
        _tensor(call.received[0], call.dtype).copy_(mine)

    def _combine(self, tensor: torch.Tensor, op: int | None) -> None:
        """Combine a flat tensor over all ranks, in place."""
        values, code = _wide(tensor), _without_mean(op)
        running: deque[Iterator[None]] = deque()
        for chunk in values.split(_CHUNK_BYTES // values.element_size()):
            running = deque(steps for steps in running if _goes_on(steps))
            running.append(self._steps(chunk, code))
            next(running[-1])
        while running:
            running = deque(steps for steps in running if _goes_on(steps))
        self._store(values, tensor, op)

    def _store(self, values: torch.Tensor, tensor: torch.Tensor, op: int | None) -> None:
        """Store a combination in a tensor, which may be the same memory."""
        if op == capi.MV_OP_MEAN:
            values.div_(len(self._order))
        if values is not tensor:
            tensor.copy_(values)

    def _steps(self, chunk: torch.Tensor, code: int) -> Iterator[None]:
        """Combine a chunk in steps, between which those of other chunks can be done."""
        self._memory.aggregate(c_int32(code), c_int32(DTYPES[chunk.dtype]), chunk)
        # Two leaders exchange all they have. More of them add a part each, which moves less.
        number = len(self._hosts)
        parts = [chunk] * number if number == 2 else chunk.tensor_split(number)
        mine = parts[self._exchange.place]
        terms = [torch.empty_like(mine) if self._exchange.is_leader else mine for _ in parts]
        terms[self._exchange.place] = mine
        swap = self._exchange.swap(parts, terms)
        yield
        swap.wait()
        if self._exchange.is_leader:
            mine.copy_(combine_pairwise(terms, code))
        if number > 2:
            swap = self._exchange.swap([mine] * number, parts)
            yield
            swap.wait()
        self._give_host(chunk)

    # ---- Calls that copy tensors

    def _broadcast(self, call: Call) -> None:
        tensor = _bytes(call.received[0], call.dtype)
        nothing = tensor[:0]
        home = next(ranks for ranks in self._hosts if call.root in ranks)
        if self._here is home:
            self._give_host(tensor, home.index(call.root))
            self._exchange.swap([tensor] * len(self._hosts), [nothing] * len(self._hosts)).wait()
        else:
            received = [tensor if ranks is home else nothing for ranks in self._hosts]
            self._exchange.swap([nothing] * len(self._hosts), received).wait()
            self._give_host(tensor)

    def _all_gather(self, call: Call) -> None:
        sent = _bytes(call.sent[0], call.dtype)
        received = [_bytes(part, call.dtype) for part in call.received]
        here = [received[rank] for rank in self._here]
        parts = [span(part) for part in here]
        self._memory.run(Call(capi.MV_CALL_ALL_GATHER, torch.uint8, [span(sent)], parts))
        others = [[] if ranks is self._here else ranks for ranks in self._hosts]
        sizes = [sum(received[rank].numel() for rank in ranks) for ranks in others]
        found = torch.empty(sum(sizes), dtype=torch.uint8)
        mine = torch.cat(here) if self._exchange.is_leader else found
        self._exchange.swap([mine] * len(sizes), found.split(sizes)).wait()
        self._give_host(found)
        for rank in (rank for ranks in others for rank in ranks):
            received[rank].copy_(found[: received[rank].numel()])
            found = found[received[rank].numel() :]

    def _all_to_all(self, call: Call) -> None:
        sent = [_bytes(part, call.dtype) for part in call.sent]
        received = [_bytes(part, call.dtype) for part in call.received]
        far = [rank for rank in range(len(self._order)) if rank not in self._here]
        swap = self._exchange.begin(
            {rank: sent[rank] for rank in far}, {rank: received[rank] for rank in far}
        )
        to_here, from_here = ([span(of[rank]) for rank in self._here] for of in (sent, received))
        self._memory.run(Call(capi.MV_CALL_ALL_TO_ALL, torch.uint8, to_here, from_here))
        swap.wait()


def _small(call: Call) -> torch.Tensor | None:
    """Return the bytes of a call that combines so few that they travel with its description."""
    if call.kind != capi.MV_CALL_AGGREGATE or call.received[0].size == 0:
        return None
    tensor = _bytes(call.received[0], call.dtype)
    return tensor if tensor.numel() <= _SMALL_BYTES else None


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type in which it is summed, which may be the tensor itself."""
    return tensor.float() if tensor.dtype in _HALVES else tensor


def _without_mean(op: int | None) -> int:
    """Return the operation that combines two tensors; a mean divides at the end."""
    return capi.MV_OP_SUM if op is None or op == capi.MV_OP_MEAN else op


def _goes_on(steps: Iterator[None]) -> bool:
    """Do the next step; return whether there are more."""
    return next(steps, steps) is None


def _tensor(part: Span, dtype: torch.dtype) -> torch.Tensor:
    """Return the memory of a call as a flat tensor."""
    size = part.size * dtype.itemsize
    if not size:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((c_byte * size).from_address(part.address), dtype=dtype)


def _bytes(part: Span, dtype: torch.dtype) -> torch.Tensor:
    """Return the memory of a call as a tensor of bytes."""
    return _tensor(Span(part.address, part.size * dtype.itemsize), torch.uint8)
