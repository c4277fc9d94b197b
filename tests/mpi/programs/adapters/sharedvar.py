"""Shared variables of PyTensor, Theano or Aesara that have a table each, for adapter_suite.py."""

import pickle
import sys
from pathlib import Path

import numpy as np
from adapters.base import ManagedModel

sys.path.append(str(Path(__file__).parents[4] / "examples" / "common"))
from theano_backend import T, theano  # noqa: E402

from multiverso.theano_ext import sharedvar  # noqa: E402


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16")
    OPTIONS = ()
    WRONG = ({"average": 1}, {"no_such_argument_of_the_framework": 1})
    IS_ONE = False

    def __init__(self, shapes, dtype, value):
        self.values_at_first = [np.full(shape, value, dtype) for shape in shapes]

    def attach(self, **options):
        self.variables = []
        for index, value in enumerate(self.values_at_first):
            if index % 2:  # The program may have made the variable before.
                variable = theano.shared(value)
                assert sharedvar.MVSharedVariable(variable, **options) is variable
            else:
                variable = sharedvar.mv_shared(value, name="W", borrow=True, **options)
            self.variables.append(variable)

    def tables(self):
        return [table for variable in self.variables for table in variable._mv_link._sync.tables]

    def values(self):
        return values_of(self.variables)

    def add(self, delta):
        for variable in self.variables:
            variable.set_value((variable.get_value() + delta).astype(variable.dtype))

    def sync(self):
        sharedvar.sync_all_mv_shared_vars()

    def wait(self):
        """Do nothing: no sync is in the background."""

    def saved_and_loaded(self, folder):
        return values_of(pickle.loads(pickle.dumps(self.variables)))  # safe: its own bytes


def values_of(variables):
    return np.concatenate([np.ravel(variable.get_value()) for variable in variables])


def descend(inputs, steps, rate, average):
    weights = sharedvar.mv_shared(np.ones(2), average=average)
    x = T.scalar("x", dtype="float64")
    gradient = theano.grad(T.sum(weights * x), weights)
    train = theano.function([x], updates=[(weights, weights - rate * gradient)])
    for _ in range(steps):
        train(inputs)
        weights.mv_sync()
    return weights.get_value()
