"""Keras on JAX: a sync changes the trainer's state in place, unless a callback has read it."""

import unittest
from unittest import mock

import numpy as np
import pytest
from keras_models import HAS_KERAS, Adder, KerasTestCase, fit, flat, held, layers, model_of

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]

if HAS_KERAS:
    import keras

    from multiverso.keras_ext import MVCallback


class Reader(keras.callbacks.Callback if HAS_KERAS else object):
    """Keeps views and copies of the weights after each batch of the last epoch."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0:
            self.views, self.copies = [], []

    def on_train_batch_end(self, batch, logs=None):
        views = [np.asarray(keras.ops.convert_to_tensor(v)) for v in self.model.weights]
        self.views += views
        self.copies += [view.copy() for view in views]


@unittest.skipUnless(HAS_KERAS and keras.backend.backend() == "jax", "needs Keras on JAX")
class TestTrainerState(KerasTestCase):
    def copies_back(self, model, *callbacks, **options):
        """Return how often training copied the state back to the variables."""
        sync = model.jax_state_sync
        with mock.patch.object(model, "jax_state_sync", side_effect=sync) as spy:
            fit(model, *callbacks, **options)
        return spy.call_count

    def test_sync_does_not_copy_the_state_back(self):
        alone = self.copies_back(model_of(*layers()), epochs=4)
        for options in ({}, {"overlap": True}):
            model = model_of(*layers())
            callback = MVCallback(model, **options)
            for _ in range(2):
                # Of the syncs after 24 batches and at the end, only the last reads the variables.
                self.assertLess(self.copies_back(model, callback, epochs=4), alone + 8)
            self.check_equal(model, callback.manager)

    def test_copies_the_state_back_if_steps_are_not_compiled(self):
        for options in ({"run_eagerly": True}, {"jit_compile": False}):
            model = model_of(*layers(), **options)
            callback = MVCallback(model)
            self.assertGreaterEqual(self.copies_back(model, callback), 6)
            self.check_equal(model, callback.manager)

    def test_views_that_a_callback_reads_do_not_change(self):
        for reader_is_first in (True, False):
            model = model_of(*layers())
            callback, reader = MVCallback(model), Reader()
            others = [reader, callback] if reader_is_first else [callback, reader]
            fit(model, Adder(callback), *others)
            for view, copy in zip(reader.views, reader.copies, strict=True):
                np.testing.assert_array_equal(view, copy)
            self.assertEqual(len(reader.views), 6 * len(model.weights))
            self.check_equal(model, callback.manager)

    def test_arrays_of_variables_do_not_change(self):
        model = model_of(keras.layers.Dense(16), keras.layers.Dense(16))
        callback = MVCallback(model)
        kept = []

        def keep():
            arrays = [variable.value for variable in model.weights]
            kept.extend((array, np.array(array, copy=True)) for array in arrays)

        for _ in range(3):
            keep()
            callback.manager.tables[0].add(np.ones(callback.manager.tables[0].size))
            callback.sync()
            keep()
            fit(model, callback)  # donates the arrays of the variables
        kept = [(array, values) for array, values in kept if not array.is_deleted()]
        self.assertGreater(len(kept), 6)
        for array, values in kept:
            np.testing.assert_array_equal(np.asarray(array), values)

    def test_later_callbacks_see_the_deltas_of_others(self):
        model = model_of(*layers()[::2], learning_rate=0.0)
        start = model.get_weights()
        callback, reader = MVCallback(model), Reader()
        fit(model, Adder(callback), callback, reader)
        for index, weight in enumerate(reader.copies):
            batch, number = divmod(index, len(start))
            np.testing.assert_allclose(weight, start[number] + batch + 1, rtol=1e-6)

    def test_finds_weights_of_layers_that_are_frozen_and_unfrozen(self):
        # The weights have equal shapes, so only their places in the state distinguish them.
        model = model_of(
            *(keras.layers.Dense(3, name=name, use_bias=False) for name in "ab"), learning_rate=0.0
        )
        model.layers[1].trainable = False
        model.compile(keras.optimizers.SGD(0.0), "mse")
        start = flat(model)
        callback = MVCallback(model)

        def toggle(epoch, logs=None):
            for layer in model.layers:
                layer.trainable = not layer.trainable
            model.layers[epoch % 2].kernel.assign(model.layers[epoch % 2].kernel + 10)

        def check(batch, logs=None):
            model.jax_state_sync()
            np.testing.assert_array_equal(flat(model), held(callback.manager))

        toggling = keras.callbacks.LambdaCallback(on_epoch_begin=toggle, on_train_batch_end=check)
        fit(model, Adder(callback), callback, toggling, epochs=2)
        np.testing.assert_allclose(flat(model), start + 10 + 12, rtol=1e-5)
        self.check_equal(model, callback.manager)
