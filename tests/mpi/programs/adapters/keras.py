"""A Keras model with KerasParamManager, for adapter_suite.py; KERAS_BACKEND names the backend."""

import os

import numpy as np

if os.environ["KERAS_BACKEND"] == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)

import keras
from adapters.base import ManagedModel

from multiverso.keras_ext import KerasParamManager, MVCallback
from multiverso.keras_ext.layers import Embedding


class ParameterModel(keras.Model):
    """A model without layers, with a weight of each shape."""

    def __init__(self, shapes, dtype, value):
        super().__init__(dtype=dtype)
        is_trained = dtype != "int32" or keras.backend.backend() != "torch"
        if not is_trained:  # PyTorch trains no integers, and a model needs a weight that it trains.
            self.add_weight(shape=(1,), dtype="float32", name="trained")
        self.added_weights = [
            self.add_weight(
                shape=shape,
                initializer=keras.initializers.Constant(value),
                dtype=dtype,
                trainable=is_trained,
                name=f"weight_{index}",
            )
            for index, shape in enumerate(shapes)
        ]
        self.built = True

    def call(self, inputs):
        return inputs


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16", "bfloat16")

    def __init__(self, shapes, dtype, value):
        self.shapes, self.dtype = shapes, dtype
        self.model = ParameterModel(shapes, dtype, value)

    def attach(self, **options):
        self.manager = KerasParamManager(self.model, **options)

    def values(self):
        return values_of(self.model)

    def add(self, delta):
        for variable in self.model.added_weights:
            variable.assign_add(keras.ops.cast(delta, variable.dtype))

    def saved_and_loaded(self, folder):
        self.model.save_weights(folder / "model.weights.h5")
        loaded_model = ParameterModel(self.shapes, self.dtype, value=-1)
        loaded_model.load_weights(folder / "model.weights.h5")
        return values_of(loaded_model)


def values_of(model):
    arrays = [keras.ops.convert_to_numpy(keras.ops.cast(p, "float64")) for p in model.added_weights]
    return np.concatenate([array.ravel() for array in arrays])


class StatisticModel(keras.Model):
    """A model with two weights that have no gradient, and one that has."""

    def __init__(self, mean):
        super().__init__()
        self.add_weight(shape=(1,), name="trained")
        options = {"shape": (1,), "trainable": False}
        self.mean = self.add_weight(
            initializer=keras.initializers.Constant(mean), name="mean", **options
        )
        self.count = self.add_weight(initializer="zeros", dtype="int32", name="count", **options)
        self.built = True


class Statistics(ManagedModel):
    def __init__(self, mean):
        self.model = StatisticModel(mean)

    def attach(self, choice, average):
        self.manager = KerasParamManager(self.model, choice, average=average)

    def values(self):
        arrays = map(keras.ops.convert_to_numpy, (self.model.mean, self.model.count))
        return [array.item() for array in arrays]

    def add(self, mean, count):
        self.model.mean.assign_add([mean])
        self.model.count.assign_add([count])


Model.Statistics = Statistics


def descend(inputs, steps, rate, average):
    """Return two weights of 1 after steps whose gradient is `inputs`."""
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.layers.Input((2,)), dense])
    model.compile(keras.optimizers.SGD(rate), lambda _, outputs: keras.ops.mean(outputs))
    x = np.full((steps, 2), inputs, np.float32)
    callback = MVCallback(model, freq=2, average=average)
    model.fit(x, x, batch_size=1, verbose=0, callbacks=[callback])
    return model.get_weights()[0].ravel()


def train_rows(table, batches):
    """Let an embedding layer train the rows that the batches name."""
    width = len(batches[0])
    model = keras.Sequential([keras.layers.Input((width,), dtype="int32"), Embedding(table)])
    model.compile(keras.optimizers.SGD(0.0), lambda _, outputs: keras.ops.sum(outputs, (1, 2)))
    ids = np.array(batches, np.int32)
    model.fit(ids, ids, batch_size=1, shuffle=False, verbose=0, callbacks=[MVCallback(model)])
