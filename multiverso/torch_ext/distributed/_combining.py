"""Combines tensors of several hosts in the order of a pairwise sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch

from multiverso._native import capi

#: Functions of two tensors that write to a third one, `out`, which may be one of both.
_COMBINERS: Final[dict[int, Callable[..., object]]] = {
    capi.MV_OP_SUM: torch.add,
    capi.MV_OP_PRODUCT: torch.mul,
    capi.MV_OP_MIN: torch.minimum,
    capi.MV_OP_MAX: torch.maximum,
    capi.MV_OP_AND: torch.bitwise_and,
    capi.MV_OP_OR: torch.bitwise_or,
    capi.MV_OP_XOR: torch.bitwise_xor,
}


def combine_pairwise(terms: Sequence[torch.Tensor], op: int, out: torch.Tensor) -> None:
    """Combine terms by ``MV_OP_...``, and write the result to `out`, which may be one of them.

    The order is that of `multiverso.aggregate`. It overwrites other terms, too.
    """
    if len(terms) == 1:
        if out is not terms[0]:
            out.copy_(terms[0])
        return
    half = 1 << (len(terms) - 1).bit_length() - 1
    for part in (terms[:half], terms[half:]):
        combine_pairwise(part, op, part[0])
    _COMBINERS[op](terms[0], terms[half], out=out)
