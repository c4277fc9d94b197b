"""A module of PyTorch, synchronized by TorchParamManager, for adapter_suite.py."""

import numpy as np
import torch
from adapters.base import ManagedModel

from multiverso.torch_ext import DistributedOptimizer, TorchParamManager


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16", "bfloat16")

    def __init__(self, shapes, dtype, value):
        self.module = torch.nn.ParameterList(
            torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
            for tensor in (torch.full(s, value, dtype=getattr(torch, dtype)) for s in shapes)
        )

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
    return np.concatenate([p.detach().double().numpy().ravel() for p in module])


class Statistics(ManagedModel):
    def __init__(self, mean):
        self.module = torch.nn.BatchNorm1d(1)
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
    module = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(module.weight)
    sgd = torch.optim.SGD(module.parameters(), lr=rate)
    optimizer = DistributedOptimizer(sgd, module, freq=2, average=average)
    for _ in range(steps):
        optimizer.zero_grad()
        module(torch.full((1, 2), inputs)).sum().backward()
        optimizer.step()
    return module.weight[0].tolist()
