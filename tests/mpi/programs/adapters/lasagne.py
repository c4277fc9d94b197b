"""A network of Lasagne, synchronized by LasagneParamManager, for adapter_suite.py."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
from adapters.base import ManagedModel

os.environ["THEANO_FLAGS"] = "mode=FAST_COMPILE,linker=py,cxx="
sys.path.append(str(Path(__file__).parents[4] / "examples" / "common"))
from lasagne_backend import T, lasagne, theano  # noqa: E402

import multiverso as mv  # noqa: E402
from multiverso.lasagne_ext.param_manager import LasagneParamManager  # noqa: E402


class ParameterLayer(lasagne.layers.Layer):
    def __init__(self, incoming, shapes, dtype, value):
        super().__init__(incoming)
        for shape in shapes:
            self.add_param(theano.shared(np.full(shape, value, dtype)), shape)


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16")

    def __init__(self, shapes, dtype, value):
        self.network = ParameterLayer(lasagne.layers.InputLayer((None, 1)), shapes, dtype, value)

    def attach(self, **options):
        self.manager = LasagneParamManager(self.network, **options)

    def values(self):
        return values_of(self.network)

    def add(self, delta):
        for variable in lasagne.layers.get_all_params(self.network):
            variable.set_value((variable.get_value() + delta).astype(variable.dtype))

    def saved_and_loaded(self, folder):
        values = lasagne.layers.get_all_param_values(self.network)
        return np.concatenate([np.ravel(v) for v in pickle.loads(pickle.dumps(values))])


def values_of(network):
    variables = lasagne.layers.get_all_params(network)
    return np.concatenate([np.ravel(variable.get_value()) for variable in variables])


class StatisticLayer(lasagne.layers.Layer):
    def __init__(self, incoming, mean):
        super().__init__(incoming)
        self.mean = self.add_param(theano.shared(np.float32([mean])), (1,), trainable=False)
        self.count = self.add_param(theano.shared(np.int64([0])), (1,), trainable=False)
        # No table has this dtype, so it is not synchronized.
        self.mask = self.add_param(theano.shared(np.int8([mv.rank()])), (1,), trainable=False)


class Statistics(ManagedModel):
    def __init__(self, mean):
        dense = lasagne.layers.DenseLayer(lasagne.layers.InputLayer((None, 2)), 2)
        self.network = StatisticLayer(dense, mean)

    def attach(self, choice, average):
        self.manager = LasagneParamManager(self.network, sync_non_trainable=choice, average=average)

    def values(self):
        assert self.network.mask.get_value() == [mv.rank()]
        return [variable.get_value().item() for variable in (self.network.mean, self.network.count)]

    def add(self, mean, count):
        for variable, delta in ((self.network.mean, mean), (self.network.count, count)):
            variable.set_value(variable.get_value() + variable.get_value().dtype.type(delta))


Model.Statistics = Statistics


def descend(inputs, steps, rate, average):
    ones, inputs_layer = lasagne.init.Constant(1), lasagne.layers.InputLayer((None, 2))
    network = lasagne.layers.DenseLayer(inputs_layer, 1, W=ones, b=None, nonlinearity=None)
    x = T.matrix("x")
    cost = T.sum(lasagne.layers.get_output(network, x))
    parameters = lasagne.layers.get_all_params(network, trainable=True)
    train = theano.function([x], updates=lasagne.updates.sgd(cost, parameters, rate))
    manager = LasagneParamManager(network, average=average)
    for _ in range(steps):
        train(np.full((1, 2), inputs, np.float32))
        manager.sync_all_param()
    return network.W.get_value().ravel()
