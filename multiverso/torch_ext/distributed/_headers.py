"""What the ranks of several hosts compare before a call: its kind, and the sizes of its arrays."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

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


def length(ranks: int) -> int:
    """Return the number of integers of a header."""
    return _FIXED + 2 * ranks


def write(header: NDArray[np.int64], call: Call, ranks: int) -> None:
    """Write what a rank tells the others of its call."""
    combines = call.op is not None
    unit = 1 if combines else call.dtype.itemsize
    header[:] = 0
    header[0] = call.kind
    header[1] = _NONE if call.op is None else call.op
    header[2] = DTYPES[call.dtype] if combines else _NONE
    header[3] = call.root
    for first, parts in ((_FIXED, call.sent), (_FIXED + ranks, call.received)):
        header[first : first + len(parts)] = [part.size * unit for part in parts]


def require_match(headers: NDArray[np.int64]) -> None:
    """Raise MismatchError unless the ranks, each of which has a row, make one call."""
    ranks = len(headers)
    _fail_first(headers, (headers[:1, :_FIXED] != headers[:, :_FIXED]).any(axis=1)[None])
    sent, received = headers[:, _FIXED : _FIXED + ranks], headers[:, _FIXED + ranks :]
    kind = int(headers[0, 0])
    if kind in _EQUAL:
        differs = (received[:1] != received).any(axis=1)[None]
    elif kind == capi.MV_CALL_ALL_GATHER:  # Each rank receives what the others send to all.
        differs = received.T != sent[:, :1]
    elif kind == capi.MV_CALL_REDUCE_SCATTER:
        differs = sent != received[:, 0]
    else:
        differs = sent != received.T
    _fail_first(headers, differs)


def _fail_first(headers: NDArray[np.int64], differs: NDArray[np.bool_]) -> None:
    """Raise MismatchError for the first pair of ranks whose calls differ, if there is one."""
    if not differs.any():
        return
    one, other = np.argwhere(differs)[0]
    ranks = len(headers)
    calls = [f"rank {rank} called {_words(headers[rank], ranks)}" for rank in (one, other)]
    raise MismatchError(", but ".join(calls))


def _words(header: NDArray[np.int64], ranks: int) -> str:
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
