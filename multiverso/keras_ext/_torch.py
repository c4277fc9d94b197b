"""Weights of Keras on PyTorch, which are tensors of PyTorch, and rows of a table in its graphs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from multiverso.keras_ext._variables import ModelWeights
from multiverso.sync._movable import grouped
from multiverso.sync._row_gradients import RowGradients
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


class FlatTensors:
    """Does the same as `FlatVariables`, with the variables as views of one flat tensor.

    On the CPU this is in the memory of `array`: a table that writes to `array` writes to the model.
    On a GPU one copy moves all values.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        tensors = [variable.value for variable in variables]
        self._flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        views = self._flat.split([tensor.numel() for tensor in tensors])
        for tensor, view in zip(tensors, views, strict=True):
            tensor.data = view.view(tensor.shape)
        self._host = self._flat
        if self._flat.device.type != "cpu":
            # A GPU reads and writes pinned memory fast.
            self._host = torch.empty_like(self._flat, device="cpu", pin_memory=True)
        self.array = self._host.numpy()
        self.pull()

    def pull(self) -> None:
        """Copy the values of the variables to `array`."""
        if self._host is not self._flat:
            self._host.copy_(self._flat)

    def push(self) -> None:
        """Copy `array` to the variables."""
        if self._host is not self._flat:
            self._flat.copy_(self._host)


def train_step_of(model: Any, keeps_weights: bool) -> Callable[[Any], Any]:
    """Return a function that trains `model` on a batch; see `_training.train_step_of`."""

    def train(data: Any) -> None:
        model.train()  # PyTorch's mode of training, which an evaluation ends.
        model.train_step(data)

    return train


def look_up_with(gradients: RowGradients, insert: bool) -> Callable[[Any, Any], Any]:
    """Return look_up(connection, ids), whose rows' gradients are collected; `insert` adds keys."""

    class LookUp(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, connection: Any, ids: Any) -> Any:
            context.ids = ids.detach().cpu().numpy()
            return torch.from_numpy(gradients.rows_of(context.ids, insert)).to(connection.device)

        @staticmethod
        def backward(context: Any, row_gradients: Any) -> tuple[Any, None]:
            # A copy, because later backward passes may change the gradient in place.
            gradients.collect(context.ids, row_gradients.detach().cpu().numpy().copy())
            # A scaler of the loss sees only this number.
            is_finite = torch.isfinite(row_gradients).all()
            return torch.where(is_finite, 0.0, torch.nan), None

    return LookUp.apply  # type: ignore[no-any-return]


def wait_for_gradients() -> None:
    """Return at once: a backward pass ends after its gradients."""
