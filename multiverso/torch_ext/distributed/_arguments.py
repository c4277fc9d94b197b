"""Reads the arguments that PyTorch passes to a group."""

from typing import Any

import torch
from torch.distributed import ReduceOp


def only(tensors: Any) -> torch.Tensor:
    """Return the tensor of a call on one tensor, which PyTorch passes in a list."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        msg = f"expected one tensor, received {len(tensors)}"
        raise ValueError(msg)
    return tensors[0]


def only_list(lists: Any) -> list[torch.Tensor]:
    """Return the list of a call on one list of tensors, which may be in another list."""
    if isinstance(lists[0], torch.Tensor):
        return list(lists)
    return list(only(lists))


def op_of(opts: Any) -> Any:
    """Return the operation of a call, whose options are those of PyTorch, or an operation."""
    op = getattr(opts, "reduceOp", opts)
    if op is None:
        return ReduceOp.SUM
    return getattr(op, "op", op)


def is_sync(opts: Any) -> bool:
    """Return whether the caller waits for a call. PyTorch's own code in C++ does not say so."""
    return not getattr(opts, "asyncOp", True)


def options(kind: Any, opts: Any) -> Any:
    """Return the options of a call, or the defaults if there are none."""
    return opts if isinstance(opts, kind) else kind()
