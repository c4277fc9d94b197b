"""The collective calls of a session, with the memory of tensors as their arguments."""

import functools
import math
import zlib
from collections.abc import Sequence
from ctypes import addressof, byref, c_int32, c_int64, c_void_p, sizeof
from datetime import timedelta
from typing import Final, NamedTuple

import torch
from torch.distributed import ReduceOp

from multiverso._native import capi
from multiverso._native.library import checked, lib, undeclared
from multiverso.torch_ext.distributed._arguments import ArgumentValueError

#: The types that the library combines.
DTYPES: Final = {
    torch.float32: capi.MV_FLOAT32,
    torch.float64: capi.MV_FLOAT64,
    torch.float16: capi.MV_FLOAT16,
    torch.bfloat16: capi.MV_BFLOAT16,
    torch.int8: capi.MV_INT8,
    torch.int16: capi.MV_INT16,
    torch.int32: capi.MV_INT32,
    torch.int64: capi.MV_INT64,
    torch.uint8: capi.MV_UINT8,
    torch.bool: capi.MV_BOOL,
}

OPS: Final = {
    ReduceOp.SUM: capi.MV_OP_SUM,
    ReduceOp.AVG: capi.MV_OP_MEAN,
    ReduceOp.PRODUCT: capi.MV_OP_PRODUCT,
    ReduceOp.MIN: capi.MV_OP_MIN,
    ReduceOp.MAX: capi.MV_OP_MAX,
    ReduceOp.BAND: capi.MV_OP_AND,
    ReduceOp.BOR: capi.MV_OP_OR,
    ReduceOp.BXOR: capi.MV_OP_XOR,
}

#: Calls that only copy take tensors of other types as bytes.
_BYTES: Final = capi.MV_UINT8

#: The longest limit of a call, which is a year.
_MOST_MS: Final = 365 * 24 * 3600 * 1000

_STRUCT_SIZE: Final = sizeof(capi.MV_CollectiveCall)
_run: Final = undeclared("MV_SessionRun")
_aggregate: Final = undeclared("MV_SessionAggregate")


@functools.cache
def _number_of(kind: object) -> int:
    """Return a number for a type, which all ranks must pass, as they pass the library's types."""
    return zlib.crc32(str(kind).encode()) >> 1


class Span(NamedTuple):
    """A part of a tensor: its address, and its number of elements."""

    address: int
    size: int


def _address(tensor: torch.Tensor) -> int:
    """Return where the memory of a dense tensor is."""
    address: int = tensor.data_ptr()
    if not address and tensor.numel():
        msg = "expected a tensor with memory, received one whose storage has been freed"
        raise ArgumentValueError(msg)
    return address


def span(tensor: torch.Tensor) -> Span:
    """Return the memory of a contiguous tensor."""
    return Span(_address(tensor), tensor.numel())


def spans(tensor: torch.Tensor, number: int) -> list[Span]:
    """Return the memory of a contiguous tensor in parts of equal size."""
    count = tensor.numel() // number
    address, step = _address(tensor), count * tensor.element_size()
    return [Span(address + i * step, count) for i in range(number)]


def spans_of_rows(tensor: torch.Tensor, rows: Sequence[int]) -> list[Span]:
    """Return the memory of a contiguous tensor in parts of so many rows."""
    in_row = tensor[0].numel() if tensor.shape[0] else 0
    address, parts = _address(tensor), []
    for number in rows:
        parts.append(Span(address, number * in_row))
        address += number * in_row * tensor.element_size()
    return parts


def _milliseconds(seconds: float) -> int:
    return min(math.ceil(seconds * 1000), _MOST_MS)


class Call:
    """The arguments of a call in C; `root` is the rank whose tensor is broadcast."""

    def __init__(
        self,
        kind: int,
        dtype: torch.dtype,
        sent: Sequence[Span],
        received: Sequence[Span],
        op: int | None = None,
        root: int = 0,
    ) -> None:
        # Elements of a type that the library does not know are copied as bytes.
        code = DTYPES.get(dtype, _BYTES)
        factor = 1 if dtype in DTYPES else dtype.itemsize
        if op is None:
            op = 0 if dtype in DTYPES else _number_of(dtype)
        raw = capi.MV_CollectiveCall(_STRUCT_SIZE, kind, op, code, root)
        self._arrays = []
        for name, parts in (("sent", sent), ("received", received)):
            if not parts:
                continue
            addresses = (c_void_p * len(parts))(*[part.address for part in parts])
            counts = (c_int64 * len(parts))(*[part.size * factor for part in parts])
            self._arrays += [addresses, counts]
            if name == "sent":
                raw.sent, raw.sent_counts = addresses, addressof(counts)
            else:
                raw.received, raw.received_counts = addressof(addresses), addressof(counts)
        self.raw = raw


def agreement(kind: str) -> Call:
    """Return a call that fails unless all ranks are about to make a call of that kind."""
    nothing = Span(0, 0)
    return Call(capi.MV_CALL_BROADCAST, torch.uint8, [], [nothing], _number_of(kind))


class SharedMemory:
    """The session of the ranks of a group, beside that of `multiverso.init`."""

    def __init__(self, job: str, rank: int, size: int, timeout: timedelta) -> None:
        self.seconds = timeout.total_seconds()
        raw = capi.MV_SessionOptions()
        checked.MV_SessionOptionsInit(byref(raw))
        raw.timeout_ms = _milliseconds(self.seconds)
        raw.start_timeout_ms = raw.timeout_ms
        raw.peer_timeout_ms = min(raw.peer_timeout_ms, raw.timeout_ms)
        if size > 1:
            raw.transport = capi.MV_TRANSPORT_LOCAL
            raw.job_name = job.encode()
            raw.job_rank, raw.job_size = rank, size
        self._handle = capi.MV_Session()
        checked.MV_SessionOpen(byref(raw), byref(self._handle))

    def limit(self, seconds: float) -> None:
        """Let the calls of this rank end in an error if they wait for longer than that."""
        if seconds != self.seconds:
            checked.MV_SessionSetTimeout(self._handle, _milliseconds(seconds))
            self.seconds = seconds

    def aggregate(self, op: c_int32, dtype: c_int32, tensor: torch.Tensor) -> None:
        """Combine a contiguous tensor over the ranks, in place."""
        address, count = c_void_p(tensor.data_ptr()), c_int64(tensor.numel())
        _aggregate(self._handle, op, dtype, address, count)

    def run(self, call: Call) -> None:
        """Make a call."""
        _run(self._handle, byref(call.raw))

    def leave(self, reason: str) -> None:
        """End this rank's calls with an error; ranks that wait for it receive the reason."""
        lib.MV_SessionLeave(self._handle, reason.encode())
