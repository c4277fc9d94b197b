"""Which tensors have memory that the library can read."""

from typing import Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from multiverso.torch_ext.distributed._arguments import ArgumentTypeError

_keys: Final = torch._C._dispatch_keys
_Key: Final = torch._C.DispatchKey


def _of_dense_tensors() -> frozenset[int]:
    """Return the keys of dense tensors on the CPU, inside and outside of inference mode."""
    with _disable_current_modes():
        outside = torch.empty(0, device="cpu")
        with torch.inference_mode():
            inside = torch.empty(0, device="cpu")
    return frozenset(_keys(tensor).raw_repr() for tensor in (outside, inside))


#: PyTorch says in one number whether a tensor is on another device, sparse, quantized, nested, a
#: view of the opposite sign, or without memory.
_DENSE: Final = _of_dense_tensors()

#: The keys of tensors that stand for others.
_OF_OTHERS: Final = (
    _Key.Python,
    _Key.FuncTorchBatched,
    _Key.FuncTorchGradWrapper,
    _Key.Functionalize,
)


class NoMemoryError(Exception):
    """A tensor stands for others, with which its class must make the call."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(f"expected tensors with memory of their own, received {type(tensor)}")


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the memory of a tensor has its elements, one after the other."""
    return _keys(tensor).raw_repr() in _DENSE and tensor.is_contiguous()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy whose memory has its elements, one after the other.

    Raise NoMemoryError or ArgumentTypeError for a tensor without memory that can be copied.
    """
    if is_dense(tensor):
        return tensor
    require_memory(tensor)
    return tensor.resolve_conj().resolve_neg().contiguous()


def require_memory(tensor: torch.Tensor) -> None:
    """Raise NoMemoryError or ArgumentTypeError unless a tensor has memory on the CPU."""
    kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else ""
    if not kind and (tensor.is_meta or any(_keys(tensor).has(key) for key in _OF_OTHERS)):
        raise NoMemoryError(tensor)
    if not kind and tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.").removeprefix("_").replace("_coo", "")
    if kind or not tensor.is_cpu:
        where = f"a {kind} one" if kind else f"one on {tensor.device}"
        raise ArgumentTypeError(f"expected a dense tensor on the CPU, received {where}")
