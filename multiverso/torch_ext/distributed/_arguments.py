"""Reads the arguments that PyTorch passes to a group, and raises errors for wrong ones."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
from torch.distributed import ReduceOp


class ArgumentTypeError(TypeError, RuntimeError):
    """An argument has the wrong type. Programs for other backends expect a RuntimeError."""


class ArgumentValueError(ValueError, RuntimeError):
    """An argument has a wrong value. Programs for other backends expect a RuntimeError."""


#: The names that PyTorch gives to the arguments of a group's methods, and ours.
NAMES: Final = {
    "tensor": "tensors",
    "op": "opts",
    "root": "opts",
    **dict.fromkeys(
        ("output", "outputTensor", "output_tensor", "output_tensors", "output_lists"), "outputs"
    ),
    **dict.fromkeys(
        ("input", "inputTensor", "input_tensor", "input_tensors", "input_list"), "inputs"
    ),
    "output_split_sizes": "output_rows",
    "input_split_sizes": "input_rows",
    "dstRank": "rank",
    "srcRank": "rank",
}


def as_list(tensors: Any) -> list[torch.Tensor]:
    """Return the tensors of a call on each of them, of which there is at least one."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    if not tensors:
        raise ArgumentValueError("expected one tensor, received 0")
    return list(tensors)


def only(tensors: Any) -> Any:
    """Return the tensor of a call on one tensor, which PyTorch passes in a list."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ArgumentValueError(f"expected one tensor, received {len(tensors)}")
    return tensors[0]


def only_list(lists: Any) -> list[torch.Tensor]:
    """Return the list of a call on one list of tensors, which may be in another list."""
    if len(lists) and isinstance(lists[0], torch.Tensor):
        return list(lists)
    return list(only(lists))


def op_of(opts: Any) -> Any:
    """Return the operation of a call, whose options are those of PyTorch, or an operation."""
    op = getattr(opts, "reduceOp", opts)
    if op is None:
        return ReduceOp.SUM
    return getattr(op, "op", op)


def root_of(opts: Any, ranks: int) -> int:
    """Return the rank that a call is to or from, from its options, or given as a number."""
    root = opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)
    return require_rank(root, ranks)


def require_rank(rank: int, ranks: int) -> int:
    """Return a rank of a group, or raise ArgumentValueError for another number."""
    if not 0 <= rank < ranks:
        msg = f"expected a rank of the group, from 0 to {ranks - 1}, received {rank}"
        raise ArgumentValueError(msg)
    return rank


def require_ranks(what: str, tensors: Sequence[object], ranks: int) -> None:
    """Raise ArgumentValueError unless there is a tensor for each rank."""
    if len(tensors) != ranks:
        raise ArgumentValueError(f"{what}: expected {ranks} tensors, received {len(tensors)}")


def is_sync(opts: Any) -> bool:
    """Return whether the caller waits for a call. PyTorch's own code in C++ does not say so."""
    return not getattr(opts, "asyncOp", True)


def seconds_of(opts: Any, timeout: timedelta | None) -> float | None:
    """Return the limit of a call, or None if it is that of the group."""
    limit = timeout or getattr(opts, "timeout", opts)
    # The options of PyTorch have a negative one unless the program has set it.
    if not isinstance(limit, timedelta) or limit.days < 0:
        return None
    return limit.total_seconds() or None


def options(kind: Any, opts: Any) -> Any:
    """Return the options of a call, or the defaults if there are none."""
    return opts if isinstance(opts, kind) else kind()
