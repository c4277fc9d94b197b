"""A network of Lasagne, synchronized by LasagneParamManager, for adapter_suite.py."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
from adapters.base import ManagedModel

os.environ["THEANO_FLAGS"] = "mode=FAST_COMPILE,linker=py,cxx="
sys.path.append(str(Path(__file__).parents[4] / "examples" / "common"))
from lasagne_backend import lasagne, theano  # noqa: E402

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
