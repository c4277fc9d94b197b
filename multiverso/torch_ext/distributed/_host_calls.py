"""Calls over several hosts, whose ranks share memory inside each host.

The first rank of a host, its leader, exchanges with the other leaders, and gives its host what it
has received. The ranks compare what they call before it has an effect, so that a mismatch is an
error on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import c_byte, c_int32
from typing import Final

import torch

from multiverso._native import capi
from multiverso.torch_ext.distributed._buffers import CHUNK_BYTES, Buffers
from multiverso.torch_ext.distributed._calls import DTYPES, Call, SharedMemory, Span, span
from multiverso.torch_ext.distributed._combining import combine_pairwise
from multiverso.torch_ext.distributed._descriptions import SMALL_BYTES, Descriptions
from multiverso.torch_ext.distributed._exchange import Exchange, Swap

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
        self._descriptions = Descriptions(memory, exchange, hosts)
        self._buffers = Buffers()

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
        contents = self._descriptions.swap(call, small)
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
        for ranks in self._hosts:
            combine_pairwise([terms[rank] for rank in ranks], code, terms[ranks[0]])
        total = terms[0]  # The first host has the first rank.
        combine_pairwise([terms[ranks[0]] for ranks in self._hosts], code, total)
        self._store(total, tensor, op)

    def _aggregate(self, call: Call) -> None:
        self._combine(_tensor(call.received[0], call.dtype), call.op)

    def _combine(self, tensor: torch.Tensor, op: int | None) -> None:
        """Combine a flat tensor over all ranks, in place."""
        chunks = tensor.split(_chunk_length(tensor.dtype))
        _overlap(self._combine_chunk(chunk, op) for chunk in chunks)

    def _combine_chunk(self, chunk: torch.Tensor, op: int | None) -> Iterator[None]:
        """Combine a chunk in steps, between which those of other chunks can be done."""
        values = chunk
        if chunk.dtype in _HALVES:
            values = self._buffers.take(chunk.numel(), torch.float32).copy_(chunk)
        self._aggregate_here(values, op)
        parts = values.tensor_split(len(self._hosts))  # Each leader combines one for all.
        mine = parts[self._exchange.place]
        room, terms = self._room_for_terms(mine)
        swap = self._exchange.swap(parts, terms)
        yield
        swap.wait()
        if self._exchange.is_leader:
            combine_pairwise(terms, _without_mean(op), mine)
        self._buffers.give_back(room)
        swap = self._exchange.swap([mine] * len(parts), parts)
        yield
        swap.wait()
        self._give_host(values)
        self._store(values, chunk, op)
        if values is not chunk:
            self._buffers.give_back(values)

    def _reduce_scatter(self, call: Call) -> None:
        parts = [_tensor(part, call.dtype) for part in call.sent]
        mine = _tensor(call.received[0], call.dtype)
        count = sum(part.numel() for part in parts)
        length = _chunk_length(call.dtype)
        if count <= length:  # One exchange of everything, in place of one for each rank.
            whole = torch.cat(parts, out=self._buffers.take(count, call.dtype))
            self._combine(whole, call.op)
            mine.copy_(whole.split([part.numel() for part in parts])[self._rank])
            self._buffers.give_back(whole)
            return
        results = iter(mine.split(length))
        _overlap(
            self._combine_for(rank, chunk, next(results) if rank == self._rank else None, call.op)
            for rank in self._order
            for chunk in parts[rank].split(length)
        )

    def _combine_for(
        self, rank: int, chunk: torch.Tensor, result: torch.Tensor | None, op: int | None
    ) -> Iterator[None]:
        """Combine a chunk for one rank, which has a `result` to store it in, in steps."""
        values = self._sum_here(chunk, op)
        home, nothing = next(ranks for ranks in self._hosts if rank in ranks), values[:0]
        number = len(self._hosts)
        if home is self._here:
            room, terms = self._room_for_terms(values)
            swap = self._exchange.swap([nothing] * number, terms)
        else:
            room, sent = nothing, [values if ranks is home else nothing for ranks in self._hosts]
            swap = self._exchange.swap(sent, [nothing] * number)
        yield
        swap.wait()
        if home is self._here:
            if self._exchange.is_leader:
                combine_pairwise(terms, _without_mean(op), values)
            self._buffers.give_back(room)
            if rank != home[0]:
                self._give_host(values)
        if result is not None:
            self._store(values, result, op)
        self._buffers.give_back(values)

    def _sum_here(self, chunk: torch.Tensor, op: int | None) -> torch.Tensor:
        """Return the chunks of this host combined, in a buffer, in the type of sums."""
        values = self._buffers.take(chunk.numel(), _type_of_sums(chunk.dtype)).copy_(chunk)
        self._aggregate_here(values, op)
        return values

    def _aggregate_here(self, values: torch.Tensor, op: int | None) -> None:
        self._memory.aggregate(c_int32(_without_mean(op)), c_int32(DTYPES[values.dtype]), values)

    def _room_for_terms(self, mine: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return a buffer, and a term for each host in it, of which this host's is `mine`."""
        place, count = self._exchange.place, mine.numel()
        others = len(self._hosts) - 1
        room = self._buffers.take(others * count, mine.dtype)
        terms = [room[i * count : (i + 1) * count] for i in range(others)]
        return room, [*terms[:place], mine, *terms[place:]]

    def _store(self, values: torch.Tensor, tensor: torch.Tensor, op: int | None) -> None:
        """Store a combination in a tensor, which may be the same memory."""
        if op == capi.MV_OP_MEAN:
            values.div_(len(self._order))
        if values is not tensor:
            tensor.copy_(values)

    # ---- Calls that copy tensors

    def _broadcast(self, call: Call) -> None:
        tensor = _bytes(call.received[0], call.dtype)
        home = next(ranks for ranks in self._hosts if call.root in ranks)
        swaps = []
        for chunk in tensor.split(CHUNK_BYTES):
            if home is self._here:
                self._give_host(chunk, home.index(call.root))
            swaps.append((chunk, self._send_from(home, chunk)))
        for chunk, swap in swaps:
            swap.wait()
            if home is not self._here:
                self._give_host(chunk)

    def _all_gather(self, call: Call) -> None:
        sent = _bytes(call.sent[0], call.dtype)
        received = [_bytes(part, call.dtype) for part in call.received]
        parts = [span(received[rank]) for rank in self._here]
        self._memory.run(Call(capi.MV_CALL_ALL_GATHER, torch.uint8, [span(sent)], parts))
        if sum(part.numel() for part in received) <= CHUNK_BYTES:
            self._gather_at_once(received)
            return
        swaps = [
            (ranks, chunk, self._send_from(ranks, chunk))
            for ranks in self._hosts
            for rank in ranks
            for chunk in received[rank].split(CHUNK_BYTES)
        ]
        for ranks, chunk, swap in swaps:
            swap.wait()
            if ranks is not self._here:
                self._give_host(chunk)

    def _gather_at_once(self, received: list[torch.Tensor]) -> None:
        """Give the tensors of this host's ranks to all other hosts, and receive theirs."""
        sizes = [received[rank].numel() for rank in self._order]
        whole = self._buffers.take(sum(sizes), torch.uint8)
        copies = dict(zip(self._order, whole.split(sizes), strict=True))
        for rank in self._here:
            copies[rank].copy_(received[rank])
        blocks = whole.split([sum(received[rank].numel() for rank in of) for of in self._hosts])
        self._exchange.swap([blocks[self._exchange.place]] * len(blocks), blocks).wait()
        self._give_host(whole)
        for rank, copied in copies.items():
            received[rank].copy_(copied)
        self._buffers.give_back(whole)

    def _send_from(self, home: list[int], tensor: torch.Tensor) -> Swap:
        """Start to send a tensor of one host to the others."""
        nothing = tensor[:0]
        if home is self._here:
            return self._exchange.swap([tensor] * len(self._hosts), [nothing] * len(self._hosts))
        received = [tensor if ranks is home else nothing for ranks in self._hosts]
        return self._exchange.swap([nothing] * len(self._hosts), received)

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


def _overlap(chunks: Iterable[Iterator[None]]) -> None:
    """Do the steps of all chunks: the first one of a chunk before the next ones of those before."""
    running: list[Iterator[None]] = []
    for steps in chunks:
        next(steps)
        running = [*(earlier for earlier in running if _goes_on(earlier)), steps]
    while running:
        running = [steps for steps in running if _goes_on(steps)]


def _small(call: Call) -> torch.Tensor | None:
    """Return the bytes of a call that combines so few that they travel with its description."""
    if call.kind != capi.MV_CALL_AGGREGATE or call.received[0].size == 0:
        return None
    tensor = _bytes(call.received[0], call.dtype)
    return tensor if tensor.numel() <= SMALL_BYTES else None


def _type_of_sums(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _HALVES else dtype


def _chunk_length(dtype: torch.dtype) -> int:
    """Return the number of elements of which a chunk is summed."""
    size: int = _type_of_sums(dtype).itemsize
    return CHUNK_BYTES // size


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type in which it is summed, which may be the tensor itself."""
    return tensor.to(_type_of_sums(tensor.dtype))


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
