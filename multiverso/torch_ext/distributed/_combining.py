"""Combines tensors of several hosts in the order of a pairwise sum."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch

from multiverso._native import capi

#: Combines two tensors, and writes to the first.
Combiner: TypeAlias = Callable[[torch.Tensor, torch.Tensor], object]

_COMBINERS: Final[dict[int, Combiner]] = {
    capi.MV_OP_SUM: torch.Tensor.add_,
    capi.MV_OP_PRODUCT: torch.Tensor.mul_,
    capi.MV_OP_MIN: lambda a, b: torch.minimum(a, b, out=a),
    capi.MV_OP_MAX: lambda a, b: torch.maximum(a, b, out=a),
    capi.MV_OP_AND: operator.iand,
    capi.MV_OP_OR: operator.ior,
    capi.MV_OP_XOR: operator.ixor,
}


def combine_pairwise(terms: Sequence[torch.Tensor], op: int) -> torch.Tensor:
    """Return the terms combined by ``MV_OP_...``, in the memory of the first one.

    The order is that of `multiverso.aggregate`. It overwrites other terms, too.
    """
    if len(terms) == 1:
        return terms[0]
    half = 1 << (len(terms) - 1).bit_length() - 1
    left = combine_pairwise(terms[:half], op)
    _COMBINERS[op](left, combine_pairwise(terms[half:], op))
    return left
