"""Shared variables of PyTensor, Theano or Aesara that have a table each, for adapter_suite.py."""

import adapters.theano
import numpy as np
from adapters.theano import T, theano

from multiverso.theano_ext import sharedvar


class Model(adapters.theano.Model):
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

    def sync(self):
        sharedvar.sync_all_mv_shared_vars()

    def wait(self):
        """Do nothing: no sync is in the background."""


def descend(inputs, steps, rate, average):
    weights = sharedvar.mv_shared(np.ones(2), average=average)
    x = T.scalar("x", dtype="float64")
    gradient = theano.grad(T.sum(weights * x), weights)
    train = theano.function([x], updates=[(weights, weights - rate * gradient)])
    for _ in range(steps):
        train(inputs)
        weights.mv_sync()
    return weights.get_value()
