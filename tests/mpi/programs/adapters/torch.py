"""A module of PyTorch, synchronized by TorchParamManager, for adapter_suite.py.

MULTIVERSO_TEST_DEVICE names the device of its tensors.
"""

import os

import numpy as np
from adapters.base import ManagedModel

import multiverso as mv

DEVICE = os.environ.get("MULTIVERSO_TEST_DEVICE", "cpu")
if DEVICE != "cpu":
    mv.assign_device()

import torch  # noqa: E402

from multiverso.torch_ext import DistributedOptimizer, Embedding, TorchParamManager  # noqa: E402


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16", "bfloat16")

    def __init__(self, shapes, dtype, value):
        self.module = torch.nn.ParameterList(
            torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
            for tensor in (torch.full(s, value, dtype=getattr(torch, dtype)) for s in shapes)
        ).to(DEVICE)

    def attach(self, **options):
        self.manager = TorchParamManager(self.module, **options)

    def values(self):
        return values_of(self.module)

    def add(self, delta):
        with torch.no_grad():
            for parameter in self.module:
                parameter += delta

    def saved_and_loaded(self, folder):
        torch.save(self.module, folder / "module.pt")
        return values_of(torch.load(folder / "module.pt", weights_only=False))  # safe: its own file


def values_of(module):
    assert all(parameter.device.type == DEVICE for parameter in module)
    return np.concatenate([p.detach().cpu().double().numpy().ravel() for p in module])


class Statistics(ManagedModel):
    def __init__(self, mean):
        self.module = torch.nn.BatchNorm1d(1).to(DEVICE)
        self.module.running_mean.fill_(mean)

    def attach(self, choice, average):
        self.manager = TorchParamManager(self.module, choice, average=average)

    def values(self):
        return [self.module.running_mean.item(), self.module.num_batches_tracked.item()]

    def add(self, mean, count):
        self.module.running_mean += mean
        self.module.num_batches_tracked += count


Model.Statistics = Statistics


def descend(inputs, steps, rate, average):
    module = torch.nn.Linear(2, 1, bias=False).to(DEVICE)
    torch.nn.init.ones_(module.weight)
    sgd = torch.optim.SGD(module.parameters(), lr=rate)
    optimizer = DistributedOptimizer(sgd, module, freq=2, average=average)
    for _ in range(steps):
        optimizer.zero_grad()
        module(torch.full((1, 2), inputs, device=DEVICE)).sum().backward()
        optimizer.step()
    return module.weight[0].tolist()


def train_rows(table, batches):
    layer = Embedding(table).to(DEVICE)
    for ids in batches:
        layer(torch.tensor(ids, device=DEVICE)).sum().backward()
        layer.step()
