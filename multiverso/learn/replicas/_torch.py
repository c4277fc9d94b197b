"""The replica for PyTorch: the parameters are views of one flat tensor."""

from typing import Any

import numpy as np
import torch

from multiverso.learn.replicas._base import Batch, Replica, pieces_of, unpack


class TorchReplica(Replica):
    """A replica whose `weights`, on the CPU, is the memory of the model's parameters.

    There a table that writes to `weights` writes to the model. On a GPU the values are copied.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        parameters = [variable.value for variable in model.trainable_variables]
        device = parameters[0].device
        self._flat = torch.empty(
            self.weights.size, dtype=getattr(torch, self.dtype.name), device=device
        )
        for parameter, view in zip(parameters, pieces_of(self._flat, self.shapes), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self._on_cpu = device.type == "cpu"
        if self._on_cpu:
            self.weights = self._flat.numpy()
            self._gradient = torch.from_numpy(self.gradient)
        else:
            # The host memory is pinned, because a GPU reads and writes pinned memory fast.
            self._host = torch.empty_like(self._flat, device="cpu", pin_memory=True)
            self._gradient = torch.zeros_like(self._flat)
            self._gradient_host = torch.zeros_like(self._host, pin_memory=True)
            self.weights = self._host.numpy()
            self.gradient = self._gradient_host.numpy()
        self._gradients = pieces_of(self._gradient, self.shapes)
        self.pull()
        self.pull_state()

    def step(self, batch: Batch) -> None:
        model = self.model
        model.train()
        model.train_step(unpack(batch))
        captured = getattr(model.optimizer, "gradients", None)
        if captured is None:
            return
        with torch.no_grad():
            for view, gradient in zip(self._gradients, captured, strict=True):
                if gradient is None:
                    view.zero_()
                else:
                    view.copy_(gradient)
            if not self._on_cpu:
                self._gradient_host.copy_(self._gradient)

    def pull(self) -> None:
        if not self._on_cpu:
            self._host.copy_(self._flat)

    def push(self) -> None:
        if not self._on_cpu:
            self._flat.copy_(self._host)

    def push_state(self) -> None:
        variables = self.model.non_trainable_variables
        with torch.no_grad():
            for piece, index in self.state_pieces:
                variables[index].value.copy_(torch.from_numpy(np.ascontiguousarray(piece)))
