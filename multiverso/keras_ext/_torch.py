"""Weights of Keras on PyTorch: in place."""

from typing import Any

from multiverso.keras_ext._variables import Access
from multiverso.sync._movable import grouped
from multiverso.sync._tensor import Tensor
from multiverso.torch_ext._tensors import TorchGroup, TorchTensor


def tensors_of(access: Access, variables: list[Any], shares: list[float]) -> list[Tensor]:
    """Return the tensors of `variables`, which are tensors of PyTorch themselves."""
    tensors = (
        TorchTensor(variable.value, f"weight {variable.path}", share)
        for variable, share in zip(variables, shares, strict=True)
    )
    return grouped(tensors, TorchGroup)
