"""Translates calls on tensors to calls of the library.

A tensor that is not contiguous, or is a view whose memory has the opposite sign, takes part as a
contiguous copy, which is copied back at the end.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch.distributed import ReduceOp

from multiverso._native import capi
from multiverso.torch_ext.distributed._arguments import ArgumentTypeError, ArgumentValueError
from multiverso.torch_ext.distributed._calls import (
    DTYPES,
    OPS,
    Call,
    Span,
    agreement,
    span,
    spans,
    spans_of_rows,
)
from multiverso.torch_ext.distributed._tensors import dense, is_dense, require_memory


class Plan(NamedTuple):
    """What the library does for a call."""

    calls: list[Call]
    #: The memory that it reads and writes.
    used: list[torch.Tensor]
    #: What must be done with the results when it has ended.
    finish: list[Callable[[], object]]


#: PyTorch's functions for two tensors.
_COMBINED: Final = {
    ReduceOp.SUM: torch.add,
    ReduceOp.AVG: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}


def by_gloo(name: str, tensor: torch.Tensor, make: Callable[[], Any]) -> Plan:
    """Let gloo make a call that the library cannot make, if all ranks are about to."""
    kind = f"{name} of {tensor.layout} {tensor.dtype} on {tensor.device.type}"

    def make_outside() -> None:
        with torch.inference_mode(mode=False):
            make().wait()

    return Plan([agreement(kind)], [tensor], [make_outside])


def reduction_of_all(tensors: Sequence[torch.Tensor], ranks: int, op: Any) -> Plan:
    """Combine several tensors over the ranks, and with each other. Each gets the result."""
    if len(tensors) == 1:
        return reduction(tensors[0], ranks, op)
    _require_dtype(tensors[0], tensors)
    _require_op(op, tensors[0].dtype)
    with torch.no_grad():
        total = functools.reduce(_COMBINED[op], map(dense, tensors))
    made = reduction(total, ranks, op)
    return made._replace(finish=[*made.finish, *_copies(total, tensors)])


def reductions(tensors: Sequence[torch.Tensor], ranks: int, op: Any) -> list[Plan]:
    """Combine each tensor over the ranks, in place. Two of them may share memory."""
    copies = _overlap(tensors)
    return [reduction(tensor, ranks, op, copies) for tensor in tensors]


def reduction(tensor: torch.Tensor, ranks: int, op: Any, copies: bool = False) -> Plan:
    """Combine a tensor over the ranks, in place, or in a copy that is copied back."""
    whole, finish = writable(tensor, keeps=True)
    if copies and whole is tensor:
        whole = tensor.detach().clone()
        finish = _copies(whole, [tensor])
    whole = _real(whole, op)
    code, before = _code(op, whole, ranks, finish)
    call = Call(capi.MV_CALL_AGGREGATE, whole.dtype, [], [span(whole)], code)
    return Plan([*before, call], [whole], finish)


def reduction_to_one(tensor: torch.Tensor, root: int, rank: int, ranks: int, op: Any) -> Plan:
    """Combine a tensor over the ranks, in place on rank `root`, and leave those of the others."""
    parts = [_nothing(tensor)] * ranks
    output, parts[root] = tensor if rank == root else parts[0], tensor
    return scatter(output, parts, op)


def broadcast(tensors: Sequence[torch.Tensor], root: int, which: int = 0) -> Plan:
    """Copy a tensor of rank `root`, by its number, to the others, and to the others in the list."""
    tensor = tensors[which]
    others = [other for other in tensors if other is not tensor]
    _require_dtype(tensor, others)
    whole, finish = writable(tensor, keeps=True)
    call = Call(capi.MV_CALL_BROADCAST, tensor.dtype, [], [span(whole)], root=root)
    return Plan([call], [whole], [*finish, *_copies(whole, others)])


def gather(outputs: Sequence[torch.Tensor], tensor: torch.Tensor) -> Plan:
    """Copy the tensors of all ranks to `outputs`."""
    _require_dtype(tensor, outputs)
    source = dense(tensor)
    wholes, finish = _writables(outputs)
    received = [span(whole) for whole in wholes]
    call = Call(capi.MV_CALL_ALL_GATHER, tensor.dtype, [span(source)], received)
    return Plan([call], [source, *wholes], finish)


def gather_into(output: torch.Tensor, tensor: torch.Tensor, ranks: int) -> Plan:
    """Copy the tensors of all ranks to the parts of one."""
    _require_dtype(tensor, [output])
    _require_size("output", output, tensor.numel() * ranks)
    source = dense(tensor)
    whole, finish = writable(output)
    call = Call(capi.MV_CALL_ALL_GATHER, tensor.dtype, [span(source)], spans(whole, ranks))
    return Plan([call], [source, whole], finish)


def scatter(output: torch.Tensor, inputs: Sequence[torch.Tensor], op: Any) -> Plan:
    """Combine the tensors that the ranks have for this one."""
    _require_dtype(output, inputs)
    sources = [_real(dense(tensor), op) for tensor in inputs]
    return _scattered(output, sources, [span(source) for source in sources], op)


def scatter_from(output: torch.Tensor, tensor: torch.Tensor, ranks: int, op: Any) -> Plan:
    """Combine the parts that the tensors of all ranks have for this one."""
    _require_dtype(output, [tensor])
    _require_size("input", tensor, output.numel() * ranks)
    source = _real(dense(tensor), op)
    return _scattered(output, [source], spans(source, ranks), op)


def _scattered(
    output: torch.Tensor, sources: list[torch.Tensor], sent: list[Span], op: Any
) -> Plan:
    whole, finish = writable(output)
    whole = _real(whole, op)
    code, before = _code(op, whole, len(sent), finish)
    call = Call(capi.MV_CALL_REDUCE_SCATTER, whole.dtype, sent, [span(whole)], code)
    return Plan([*before, call], [whole, *sources], finish)


def from_one(output: torch.Tensor, inputs: Sequence[torch.Tensor], root: int, ranks: int) -> Plan:
    """Receive a tensor from rank `root`, which has `inputs` for the ranks; the others have none."""
    nothing = _nothing(output)
    wholes = [nothing] * ranks
    wholes[root], finish = writable(output)
    return _exchange(inputs or [nothing] * ranks, wholes, finish)


def to_one(outputs: Sequence[torch.Tensor], tensor: torch.Tensor, root: int, ranks: int) -> Plan:
    """Send a tensor to rank `root`, which has `outputs` of the ranks; the others have none."""
    nothing = _nothing(tensor)
    sources = [nothing] * ranks
    sources[root] = tensor
    wholes, finish = _writables(outputs or [nothing] * ranks)
    return _exchange(sources, wholes, finish)


def exchange(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Plan:
    """Send a tensor to each rank, and receive one from each."""
    wholes, finish = _writables(outputs)
    return _exchange(inputs, wholes, finish)


def _exchange(
    inputs: Sequence[torch.Tensor],
    wholes: Sequence[torch.Tensor],
    finish: list[Callable[[], object]],
) -> Plan:
    _require_dtype(wholes[0], [*wholes, *inputs])
    sources = [dense(tensor) for tensor in inputs]
    sent, received = [span(source) for source in sources], [span(whole) for whole in wholes]
    call = Call(capi.MV_CALL_ALL_TO_ALL, wholes[0].dtype, sent, received)
    return Plan([call], [*sources, *wholes], finish)


def exchange_rows(
    output: torch.Tensor,
    tensor: torch.Tensor,
    ranks: int,
    output_rows: Sequence[int],
    input_rows: Sequence[int],
) -> Plan:
    """Send rows of a tensor to each rank and receive rows; without numbers, equal parts."""
    _require_dtype(output, [tensor])
    source = dense(tensor)
    whole, finish = writable(output)
    sent = _parts("input", source, ranks, input_rows)
    received = _parts("output", whole, ranks, output_rows)
    call = Call(capi.MV_CALL_ALL_TO_ALL, output.dtype, sent, received)
    return Plan([call], [source, whole], finish)


def barrier() -> Plan:
    """Wait for all ranks."""
    return Plan([Call(capi.MV_CALL_BARRIER, torch.uint8, [], [])], [], [])


def _parts(what: str, tensor: torch.Tensor, ranks: int, rows: Sequence[int]) -> list[Span]:
    if not rows:
        if tensor.numel() % ranks:
            msg = f"{what}: expected {ranks} equal parts, received {tensor.numel()} elements"
            raise ArgumentValueError(msg)
        return spans(tensor, ranks)
    length = tensor.shape[0] if tensor.dim() else 0
    if len(rows) != ranks or min(rows) < 0 or sum(rows) != length:
        raise ArgumentValueError(
            f"{what}_split_sizes: expected {ranks} numbers whose sum is {length}, received "
            f"{list(rows)}"
        )
    return spans_of_rows(tensor, rows)


def writable(
    tensor: torch.Tensor, keeps: bool = False
) -> tuple[torch.Tensor, list[Callable[[], object]]]:
    """Return a contiguous tensor, with the content if `keeps`, and what copies it back."""
    if not is_dense(tensor):
        require_memory(tensor)
        if torch._debug_has_internal_overlap(tensor) == 1:
            raise ArgumentValueError(
                "expected memory for each element, received an expanded tensor"
            )
    whole = dense(tensor) if keeps or is_dense(tensor) else _room_for(tensor)
    return whole, [] if whole is tensor else [lambda: tensor.copy_(whole)]


def _copies(whole: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[Callable[[], object]]:
    return [functools.partial(tensor.copy_, whole) for tensor in tensors]


def _overlap(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether two of the tensors share memory in which the library would write."""
    found = sorted(
        (tensor.data_ptr(), tensor.numel() * tensor.element_size())
        for tensor in tensors
        if is_dense(tensor)
    )
    return any(a + size > b for (a, size), (b, _) in itertools.pairwise(found))


def _nothing(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=tensor.dtype)


def _room_for(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _real(tensor: torch.Tensor, op: Any) -> torch.Tensor:
    """Return dense complex numbers as pairs of numbers, which are summed in the same way."""
    is_sum = op in (ReduceOp.SUM, ReduceOp.AVG) and tensor.is_complex()
    return torch.view_as_real(tensor) if is_sum else tensor


def _writables(
    tensors: Sequence[torch.Tensor],
) -> tuple[list[torch.Tensor], list[Callable[[], object]]]:
    pairs = [writable(tensor) for tensor in tensors]
    return [whole for whole, _ in pairs], [copy for _, finish in pairs for copy in finish]


def _code(
    op: Any, whole: torch.Tensor, ranks: int, finish: list[Callable[[], object]]
) -> tuple[int, list[Call]]:
    """Return the code of an operation, and the calls before it.

    An average of integers is a sum that `finish` divides, if all ranks are about to divide it.
    """
    _require_op(op, whole.dtype)
    if OPS[op] == capi.MV_OP_MEAN and not whole.dtype.is_floating_point:
        finish.insert(0, lambda: whole.div_(ranks, rounding_mode="trunc"))
        return capi.MV_OP_SUM, [agreement(f"{op} of {whole.dtype}")]
    return OPS[op], []


def _require_op(op: Any, dtype: torch.dtype) -> None:
    """Raise an error unless an operation is for tensors of a dtype."""
    if op not in OPS:
        msg = f"op: expected one of {', '.join(known.name for known in OPS)}, received {op}"
        raise ArgumentValueError(msg)
    if dtype not in DTYPES or (dtype is torch.bool and OPS[op] == capi.MV_OP_MEAN):
        allowed = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        msg = f"{op.name}: expected tensors of {allowed} (AVG: no bool), received {dtype}"
        raise ArgumentTypeError(msg)
    is_bitwise = op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
    if is_bitwise and dtype.is_floating_point:
        msg = f"{op.name}: expected tensors of integers or bools, received {dtype}"
        raise ArgumentTypeError(msg)


def _require_dtype(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> None:
    for other in others:
        if other.dtype is not tensor.dtype:
            msg = f"expected tensors of one dtype, received {tensor.dtype} and {other.dtype}"
            raise ArgumentTypeError(msg)


def _require_size(what: str, tensor: torch.Tensor, count: int) -> None:
    if tensor.numel() != count:
        raise ArgumentValueError(f"{what}: expected {count} elements, received {tensor.numel()}")
