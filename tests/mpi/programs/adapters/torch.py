"""A module of PyTorch, synchronized by TorchParamManager, for adapter_suite.py."""

import numpy as np
import torch
from adapters.base import ManagedModel

from multiverso.torch_ext import TorchParamManager


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
