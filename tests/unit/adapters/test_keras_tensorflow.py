"""Keras on TensorFlow, whose variables share memory with tensors read from or assigned to them."""

import unittest
from unittest import mock

import numpy as np
import pytest
from keras_models import HAS_KERAS, Adder, KerasTestCase, fit, flat, held, layers, model_of

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]

IS_TENSORFLOW = False
if HAS_KERAS:
    import keras

    IS_TENSORFLOW = keras.backend.backend() == "tensorflow"

if IS_TENSORFLOW:
    import tensorflow as tf

    from multiverso.keras_ext import KerasParamManager, MVCallback, _tensorflow

#: The ways to run a step: compiled, as a graph, and eagerly.
MODES = ({"jit_compile": True}, {"jit_compile": False}, {"run_eagerly": True})


class Keeper(keras.callbacks.Callback if HAS_KERAS else object):
    """Keeps the tensors of the weights after each batch, and variables assigned from them."""

    def __init__(self):
        super().__init__()
        self.kept, self.values = [], []

    def on_train_batch_end(self, batch, logs=None):
        tensors = [tf.convert_to_tensor(v.value) for v in self.model.weights]
        variables = [tf.Variable(tf.zeros_like(tensor)) for tensor in tensors]
        for variable, tensor in zip(variables, tensors, strict=True):
            variable.assign(tensor)
        self.kept += tensors + variables
        self.values += [tensor.numpy().copy() for tensor in tensors] * 2


@unittest.skipUnless(IS_TENSORFLOW, "needs Keras on TensorFlow")
class TestVariables(KerasTestCase):
    def check_kept(self, keeper):
        for kept, values in zip(keeper.kept, keeper.values, strict=True):
            np.testing.assert_array_equal(kept.numpy(), values)

    def store_of(self, model):
        """Return the store of the weights of a model whose weights are all float32."""
        return _tensorflow._store_of([v.value for v in model.weights])

    def test_changes_weights_in_place_if_they_can_have_own_memory(self):
        self.assertIsInstance(self.store_of(model_of(*layers())), _tensorflow._HostStore)
        # A scalar is a special case, because it has no elements to update.
        store = _tensorflow._store_of([tf.Variable(1.0)])
        self.assertIsInstance(store, _tensorflow._HostStore)
        for copies in (lambda v: v.read_value(), lambda v: tf.raw_ops.DeepCopy(x=v)):
            with mock.patch.object(_tensorflow, "_with_own_memory", copies):
                self.assertIsInstance(self.store_of(model_of(*layers())), _tensorflow._DeviceStore)

    def test_tensors_that_a_callback_reads_do_not_change(self):
        for options in MODES:
            for keeper_is_first in (True, False):
                model = model_of(*layers(), **options)
                callback, keeper = MVCallback(model), Keeper()
                others = [keeper, callback] if keeper_is_first else [callback, keeper]
                fit(model, Adder(callback), *others)
                self.check_kept(keeper)
                self.assertEqual(len(keeper.kept), 2 * 6 * len(model.weights))
                self.check_equal(model, callback.manager)

    def test_separates_weights_that_share_memory(self):
        model = model_of(*(keras.layers.Dense(3, use_bias=False) for _ in "ab"))
        one, other = (layer.kernel.value for layer in model.layers)
        manager = KerasParamManager(model)
        one.assign(other)
        manager.tables[0].add(np.arange(18.0))
        before = one.numpy()
        manager.sync_all_param()
        self.assertFalse(np.array_equal(one.numpy(), other.numpy()))
        np.testing.assert_allclose(other.numpy() - one.numpy(), np.full((3, 3), 9.0), rtol=1e-5)
        self.assertFalse(np.array_equal(one.numpy(), before))
        self.check_equal(model, manager)

    def test_syncs_variables_after_scatter_updates(self):
        # A scatter update makes a variable copy on each later read and assignment.
        model = model_of(keras.layers.Dense(4), learning_rate=0.0)
        manager = KerasParamManager(model)
        kernel = model.layers[0].kernel.value
        for value in (5.0, 7.0):
            kernel.scatter_nd_update([[1, 2]], [value])
            read = kernel.read_value()
            manager.tables[0].add(np.ones(16))
            manager.sync_all_param()
            self.assertEqual(kernel.numpy()[1, 2], value + 1)
            self.assertEqual(read.numpy()[1, 2], value)
            self.check_equal(model, manager)

    def test_syncs_embeddings_with_sparse_updates(self):
        for options in MODES:
            model = keras.Sequential([keras.layers.Embedding(50, 4), keras.layers.Flatten()])
            model.build((None, 3))
            model.compile(keras.optimizers.SGD(0.5), "mse", **options)
            callback = MVCallback(model)
            before = flat(model)
            rows = np.arange(12).reshape(4, 3)
            model.fit(rows, np.ones((4, 12)), batch_size=1, verbose=0, callbacks=[callback])
            self.check_equal(model, callback.manager)
            changed = (flat(model) != before).reshape(50, 4).any(axis=1)
            np.testing.assert_array_equal(changed, np.arange(50) < 12)

    def test_syncs_variables_outside_cpu_memory(self):
        # The test simulates a GPU, whose memory the CPU cannot access.
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            for options in ({}, {"overlap": True}):
                dense = (keras.layers.Dense(4, dtype=dtype), keras.layers.Dense(2))
                model = model_of(*dense, learning_rate=0.0)
                start = flat(model)
                with mock.patch.object(_tensorflow._HostStore, "is_possible", return_value=False):
                    callback, keeper = MVCallback(model, **options), Keeper()
                fit(model, Adder(callback), callback, keeper)
                self.check_kept(keeper)
                np.testing.assert_allclose(flat(model), start + 6, rtol=0.02)
                weights, sums = np.sort(flat(model)), np.sort(held(callback.manager))
                np.testing.assert_allclose(weights, sums, rtol=0.01)

    def test_syncs_variables_of_a_distribution_strategy(self):
        with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
            model = model_of(*layers())
        self.assertIsInstance(model.weights[0].value, tf.distribute.DistributedValues)
        self.assertIsInstance(self.store_of(model), _tensorflow._DeviceStore)
        callback = MVCallback(model)
        fit(model, Adder(callback), callback)
        self.check_equal(model, callback.manager)
