"""Weights of Keras on PyTorch, which are tensors of PyTorch."""

from typing import Any

from multiverso.keras_ext._variables import ModelWeights
from multiverso.sync._movable import grouped
from multiverso.sync._table_copy import Share
from multiverso.sync._tensor import Tensor
from multiverso.torch_ext._tensors import TorchGroup, TorchTensor


def tensors_of(weights: ModelWeights, variables: list[Any], shares: list[Share]) -> list[Tensor]:
    """Return the tensors of `variables`."""
    tensors = (
        TorchTensor(variable.value, f"weight {variable.path}", share)
        for variable, share in zip(variables, shares, strict=True)
    )
    return grouped(tensors, TorchGroup)
