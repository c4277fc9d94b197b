"""Keras models for the adapter tests with one worker."""

import importlib.util
import unittest

import numpy as np
import sessions

HAS_KERAS = importlib.util.find_spec("keras") is not None
if HAS_KERAS:
    import keras


def model_of(*layers, learning_rate=0.125, **options):
    """Return a compiled model of 3 inputs."""
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.5)
    model.compile(optimizer, "mse", **options)
    return model


def layers():
    """Return a dense layer with 16 parameters, batch normalization with 16, and one with 5."""
    return [
        keras.layers.Dense(
            4, activation="tanh", kernel_initializer=keras.initializers.Constant(0.1)
        ),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(0.5)),
    ]


def data():
    """Return 24 samples and the sums of their features."""
    x = np.random.default_rng(1).normal(size=(24, 3)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def flat(model):
    """Return all weights of a model as one vector."""
    arrays = [keras.ops.convert_to_numpy(keras.ops.cast(v, "float64")) for v in model.weights]
    return np.concatenate([array.ravel() for array in arrays])


def held(manager):
    """Return all elements of a manager's tables as one vector."""
    return np.concatenate([table.get() for table in manager.tables])


def fit(model, *callbacks, epochs=1, **options):
    """Train on 6 batches in each epoch."""
    options |= {"batch_size": 4, "epochs": epochs, "verbose": 0, "shuffle": False}
    return model.fit(*data(), callbacks=[*callbacks], **options)


@unittest.skipUnless(HAS_KERAS, "needs Keras")
class KerasTestCase(sessions.SessionTestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)

    def check_equal(self, model, manager):
        """Check that model and tables have equal values; their orders may differ."""
        np.testing.assert_array_equal(np.sort(flat(model)), np.sort(held(manager)))


class Adder(keras.callbacks.Callback if HAS_KERAS else object):
    """Simulates another worker that adds one to every parameter after each batch."""

    def __init__(self, callback):
        super().__init__()
        self.tables = callback.manager.tables

    def on_train_batch_end(self, batch, logs=None):
        for table in self.tables:
            table.add(np.ones(table.size))


class Counter(keras.layers.Layer if HAS_KERAS else object):
    """Adds two to each element of a statistic in each batch."""

    def build(self, shape):
        self.count = self.add_weight(shape=(5,), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.count.assign(self.count + 2)
        return inputs
