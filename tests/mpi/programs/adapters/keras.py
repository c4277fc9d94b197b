"""A Keras model under KerasParamManager, on the backend that KERAS_BACKEND names."""

import os

import numpy as np

if os.environ["KERAS_BACKEND"] == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)

import keras

from multiverso.keras_ext import KerasParamManager


class Weights(keras.Model):
    def __init__(self, shapes, dtype, value):
        super().__init__(dtype=dtype)
        self.parts = [
            self.add_weight(
                shape=shape,
                initializer=keras.initializers.Constant(value),
                dtype=dtype,
                name=f"weight_{index}",
            )
            for index, shape in enumerate(shapes)
        ]
        self.built = True

    def call(self, inputs):
        return inputs


class Model:
    DTYPES = ("float32", "float64", "float16", "bfloat16")

    def __init__(self, shapes, dtype, value):
        self.arguments = (shapes, dtype)
        self.model = Weights(shapes, dtype, value)

    def attach(self, **options):
        self.manager = KerasParamManager(self.model, **options)

    def tables(self):
        return self.manager.tables

    def values(self):
        return values_of(self.model)

    def add(self, delta):
        for variable in self.model.parts:
            variable.assign_add(keras.ops.cast(delta, variable.dtype))

    def sync(self):
        self.manager.sync_all_param()

    def wait(self):
        self.manager.wait()

    def saved_and_loaded(self, folder):
        self.model.save_weights(folder / "model.weights.h5")
        twin = Weights(*self.arguments, value=-1)
        twin.load_weights(folder / "model.weights.h5")
        return values_of(twin)


def values_of(model):
    arrays = [keras.ops.convert_to_numpy(keras.ops.cast(v, "float64")) for v in model.parts]
    return np.concatenate([array.ravel() for array in arrays])
