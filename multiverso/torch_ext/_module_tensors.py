"""The tensors of a PyTorch module that are synchronized, also after the module replaces them."""

from typing import Any

import numpy as np
import torch

from multiverso._native.dtypes import require_table_dtype
from multiverso.sync._array_tensors import require_apart
from multiverso.sync._movable import grouped
from multiverso.sync._shares import Shares, share_of_parameter
from multiverso.sync._table_copy import Share
from multiverso.sync._tensor import Tensors
from multiverso.torch_ext._connection import Connection
from multiverso.torch_ext._tensors import TorchGroup, TorchTensor, dtype_of


class ModuleTensors(Tensors):
    """The parameters and buffers of a module that are synchronized.

    A module replaces a tensor in ``load_state_dict(assign=True)``, by an assignment in its
    ``forward``, or when it moves to another device. The next sync uses the new tensor.
    """

    def __init__(self, module: torch.nn.Module, shares: Shares, average: bool) -> None:
        self._module = module
        self._shares = shares
        self._average = average
        self._by_name = {
            name: TorchTensor(tensor, name, share) for name, (tensor, share) in self._find().items()
        }
        if not any(name.startswith("parameter ") for name in self._by_name):
            kind = type(module).__name__
            raise ValueError(f"module: expected parameters, received a {kind} without any")
        modules = list(module.modules())
        # PyTorch keeps the parts of a module in these dictionaries.
        super().__init__(
            grouped(self._by_name.values(), TorchGroup),
            lambda: [
                part
                for member in modules
                for parts in (member._parameters, member._buffers, member._modules)
                for part in parts.values()
            ],
            lambda: {name: name for name in self._find()},
            type(module).__name__,
        )

    def update(self) -> None:
        """Use the tensors that the module has now, which must be like those at first."""
        super().update()
        for name, (tensor, _) in self._find().items():
            self._by_name[name].tensor = tensor

    def sources(self) -> list[torch.Tensor]:
        """Return the parameters."""
        return list(self._module.parameters())

    def _find(self) -> dict[str, tuple[torch.Tensor, Share]]:
        """Return the tensors that are synchronized, with their shares, by their full names."""
        found: dict[str, tuple[torch.Tensor, Share]] = {}
        for name, parameter in self._module.named_parameters():
            if isinstance(parameter, Connection):  # It stays zero on all workers.
                continue
            what = f"parameter {name}"
            _require_dense_values(parameter, what)
            dtype = dtype_of(parameter)
            require_table_dtype(dtype, what)
            found[what] = parameter, share_of_parameter(dtype, self._average)
        for name, buffer in self._module.named_buffers():
            if (share := self._shares.of(dtype_of(buffer))) is not None:
                what = f"buffer {name}"
                _require_dense_values(buffer, f"{what} (sync_buffers=False leaves it out)")
                found[what] = buffer, share
        return _with_separate_memory(found)


def _require_dense_values(tensor: torch.Tensor, what: str) -> None:
    """Raise an error unless a tensor has a value in memory of its own for each element."""
    if torch.nn.parameter.is_lazy(tensor):
        raise ValueError(f"{what}: expected a shape, received a lazy one; run a batch first")
    if tensor.layout != torch.strided:
        raise TypeError(f"{what}: expected a dense tensor, received the layout {tensor.layout}")
    if tensor.is_meta:
        raise ValueError(f"{what}: expected values, received a tensor on the meta device")
    if tensor.is_inference():
        msg = f"{what}: expected a normal tensor, received one made in torch.inference_mode"
        raise ValueError(msg)
    axes = zip(tensor.stride(), tensor.shape, strict=True)
    if tensor.numel() and any(stride == 0 and length > 1 for stride, length in axes):
        raise ValueError(
            f"{what}: expected memory for each element, received strides {tensor.stride()}, as "
            "after expand; call contiguous() on it"
        )


def _with_separate_memory(
    tensors: dict[str, tuple[torch.Tensor, Share]],
) -> dict[str, tuple[torch.Tensor, Share]]:
    """Leave out tensors that are the memory of an earlier one; raise if a part is shared."""
    kept: dict[Any, tuple[str, torch.Tensor, Share]] = {}
    for what, (tensor, share) in tensors.items():
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        kept.setdefault(memory if tensor.numel() else what, (what, tensor, share))
    # A tensor without elements has no memory.
    filled = {what: tensor for what, tensor, _ in kept.values() if tensor.numel()}
    for device in {tensor.device for tensor in filled.values()}:
        here = {what: tensor for what, tensor in filled.items() if tensor.device == device}
        require_apart([np.asarray(_Memory(each)) for each in here.values()], "module", list(here))
    return {what: (tensor, share) for what, tensor, share in kept.values()}


class _Memory:
    """Tells NumPy where a tensor is; an array of it serves to compare addresses only."""

    def __init__(self, tensor: torch.Tensor) -> None:
        size = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": tuple(stride * size for stride in tensor.stride()),
            "typestr": f"|V{size}",
        }
