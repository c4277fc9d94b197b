"""Shared variables of PyTensor, Theano or Aesara with MVModelParamManager, for adapter_suite.py."""

import pickle
import sys
from pathlib import Path

import numpy as np
from adapters.base import ManagedModel

sys.path.append(str(Path(__file__).parents[4] / "examples" / "common"))
from theano_backend import T, theano  # noqa: E402

from multiverso.theano_ext.param_manager import MVModelParamManager  # noqa: E402


class Manager(MVModelParamManager):
    def get_all_param_values(self):
        return [variable.get_value(borrow=True) for variable in self.model]

    def set_all_param_values(self, params):
        for index, (variable, value) in enumerate(zip(self.model, params, strict=True)):
            variable.set_value(value, borrow=index % 2 == 1)  # A model may keep what it gets.


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16")

    def __init__(self, shapes, dtype, value):
        self.variables = [theano.shared(np.full(shape, value, dtype)) for shape in shapes]

    def attach(self, **options):
        self.manager = Manager(self.variables, **options)

    def values(self):
        return values_of(self.variables)

    def add(self, delta):
        for variable in self.variables:
            variable.set_value((variable.get_value() + delta).astype(variable.dtype))

    def saved_and_loaded(self, folder):
        return values_of(pickle.loads(pickle.dumps(self.variables)))  # safe: its own bytes


def values_of(variables):
    return np.concatenate([np.ravel(variable.get_value()) for variable in variables])


def descend(inputs, steps, rate, average):
    weights = theano.shared(np.ones(2))
    x = T.scalar("x", dtype="float64")
    gradient = theano.grad(T.sum(weights * x), weights)
    train = theano.function([x], updates=[(weights, weights - rate * gradient)])
    manager = Manager([weights], average=average)
    for _ in range(steps):
        train(inputs)
        manager.sync_all_param()
    return weights.get_value()
