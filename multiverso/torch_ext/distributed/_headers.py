"""What the ranks of several hosts compare before a call: its kind, and the sizes of its arrays."""

from __future__ import annotations

from typing import Final

import torch

from multiverso._native import capi
from multiverso.errors import MismatchError
from multiverso.torch_ext.distributed._calls import DTYPES, Call

_NAMES: Final = {
    capi.MV_CALL_AGGREGATE: "all_reduce",
    capi.MV_CALL_BROADCAST: "broadcast",
    capi.MV_CALL_ALL_GATHER: "all_gather",
    capi.MV_CALL_REDUCE_SCATTER: "reduce_scatter",
    capi.MV_CALL_ALL_TO_ALL: "all_to_all",
    capi.MV_CALL_BARRIER: "barrier",
}
_OPS: Final = {
    capi.MV_OP_SUM: "SUM",
    capi.MV_OP_MEAN: "AVG",
    capi.MV_OP_PRODUCT: "PRODUCT",
    capi.MV_OP_MIN: "MIN",
    capi.MV_OP_MAX: "MAX",
    capi.MV_OP_AND: "BAND",
    capi.MV_OP_OR: "BOR",
    capi.MV_OP_XOR: "BXOR",
}

#: The calls of equal arrays on all ranks, whose size the header has in place of one for each rank.
_EQUAL: Final = (capi.MV_CALL_AGGREGATE, capi.MV_CALL_BROADCAST)

#: The numbers before those of the arrays: the kind, the operation, the dtype and the root.
_FIXED: Final = 4

#: A call that only copies has no operation, and counts bytes.
_NONE: Final = -1


def header_of(call: Call, ranks: int) -> torch.Tensor:
    """Return what a rank tells the others of its call, as integers."""
    combines = call.op is not None
    unit = 1 if combines else call.dtype.itemsize
    fixed = [
        call.kind,
        call.op if combines else _NONE,
        DTYPES[call.dtype] if combines else _NONE,
        call.root,
    ]
    header = torch.zeros(_FIXED + 2 * ranks, dtype=torch.int64)
    header[:_FIXED] = torch.tensor(fixed)
    for first, parts in ((_FIXED, call.sent), (_FIXED + ranks, call.received)):
        if parts:
            counts = torch.tensor([part.size * unit for part in parts])
            header[first : first + len(parts)] = counts
    return header


def require_match(headers: torch.Tensor) -> None:
    """Raise MismatchError unless the ranks, each of which has a row, make one call."""
    ranks = headers.shape[0]
    differs = (headers[:, :_FIXED] != headers[0, :_FIXED]).any(dim=1)
    for rank in differs.nonzero()[:1]:
        _fail(headers, 0, int(rank))
    sent, received = headers[:, _FIXED : _FIXED + ranks], headers[:, _FIXED + ranks :]
    kind = int(headers[0, 0])
    if kind in _EQUAL:
        wrong = (received != received[0]).any(dim=1)
        pairs = [(0, int(rank)) for rank in wrong.nonzero()[:1]]
    elif kind == capi.MV_CALL_ALL_GATHER:  # Each rank receives what the others send to all.
        pairs = _first_pair(received.t() != sent[:, :1])
    elif kind == capi.MV_CALL_REDUCE_SCATTER:
        pairs = _first_pair(sent != received[:, 0])
    else:
        pairs = _first_pair(sent != received.t())
    for pair in pairs:
        _fail(headers, *pair)


def _first_pair(differs: torch.Tensor) -> list[tuple[int, int]]:
    return [(int(sender), int(receiver)) for sender, receiver in differs.nonzero()[:1]]


def _fail(headers: torch.Tensor, one: int, other: int) -> None:
    ranks = headers.shape[0]
    calls = [f"rank {rank} called {_words(headers[rank], ranks)}" for rank in (one, other)]
    raise MismatchError(", but ".join(calls))


def _words(header: torch.Tensor, ranks: int) -> str:
    kind, op, dtype, root, *counts = header.tolist()
    sent, received = counts[:ranks], counts[ranks:]
    text = _NAMES[kind]
    if kind == capi.MV_CALL_BARRIER:
        return text
    unit = "bytes"
    if op != _NONE:
        unit = next(str(known) for known, code in DTYPES.items() if code == dtype)
        unit = unit.removeprefix("torch.")
        text += f" ({_OPS[op]})"
    if kind == capi.MV_CALL_BROADCAST:
        text += f" from rank {root}"
    if kind in _EQUAL:
        return f"{text} of {received[0]} {unit}"
    if kind == capi.MV_CALL_ALL_GATHER:
        sent = sent[:1]
    elif kind == capi.MV_CALL_REDUCE_SCATTER:
        received = received[:1]
    return f"{text} that sends {sent} and receives {received} {unit}"
