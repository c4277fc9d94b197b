"""The state of a Keras trainer on JAX is worked on in place, unless somebody has looked at it."""

import unittest
from unittest import mock

import numpy as np
import pytest
from keras_models import HAS_KERAS, Adder, Counter, InSession, fit, flat, held, layers, model_of

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]

if HAS_KERAS:
    import keras

    from multiverso.keras_ext import MVCallback


class Looker(keras.callbacks.Callback if HAS_KERAS else object):
    """Looks at the weights after each batch, and keeps what the backend showed it."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0:
            self.shown, self.copies = [], []

    def on_train_batch_end(self, batch, logs=None):
        shown = [np.asarray(keras.ops.convert_to_tensor(v)) for v in self.model.weights]
        self.shown += shown
        self.copies += [array.copy() for array in shown]


@unittest.skipUnless(HAS_KERAS and keras.backend.backend() == "jax", "needs Keras on JAX")
class TestStateOfJax(InSession):
    """The trainer's state is worked on in place, unless somebody has looked at the weights."""

    def trained(self, model, *callbacks, **options):
        """Return how often the state was put back into the variables."""
        sync = model.jax_state_sync
        with mock.patch.object(model, "jax_state_sync", side_effect=sync) as it:
            fit(model, *callbacks, **options)
        return it.call_count

    def test_it_is_not_put_back_for_a_sync(self):
        alone = self.trained(model_of(*layers()), epochs=4)
        for options in ({}, {"overlap": True}):
            model = model_of(*layers())
            callback = MVCallback(model, **options)
            for _ in range(2):
                # 24 batches; but the end of it all syncs what is in the variables again.
                self.assertLess(self.trained(model, callback, epochs=4), alone + 8)
            self.check_equal(model, callback.manager)

    def test_it_is_put_back_where_steps_are_not_compiled(self):
        for options in ({"run_eagerly": True}, {"jit_compile": False}):
            model = model_of(*layers(), **options)
            callback = MVCallback(model)
            self.assertGreaterEqual(self.trained(model, callback), 6)
            self.check_equal(model, callback.manager)

    def test_statistics_of_several_workers(self):
        for dtype in ("float32", "float16"):
            model = model_of(keras.layers.Dense(2), Counter(dtype=dtype))
            with mock.patch("multiverso.sync._param_manager.Shares.of", return_value=0.5):
                callback = MVCallback(model)  # as one of two
            others = [Adder(callback), Adder(callback)]
            self.assertLess(self.trained(model, *others, callback, epochs=2), 12)
            # In each of 12 batches half of two, and one from each of the others.
            np.testing.assert_array_equal(model.layers[-1].count, np.full(5, 36))
            self.check_equal(model, callback.manager)

    def test_what_a_callback_was_shown_does_not_change(self):
        for is_first in (True, False):
            model = model_of(*layers())
            callback, looker = MVCallback(model), Looker()
            others = [looker, callback] if is_first else [callback, looker]
            fit(model, Adder(callback), *others)
            for shown, copy in zip(looker.shown, looker.copies, strict=True):
                np.testing.assert_array_equal(shown, copy)
            self.assertEqual(len(looker.shown), 6 * len(model.weights))
            self.check_equal(model, callback.manager)

    def test_what_variables_held_does_not_change(self):
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
            fit(model, callback)  # gives away what the variables hold
        kept = [(array, values) for array, values in kept if not array.is_deleted()]
        self.assertGreater(len(kept), 6)
        for array, values in kept:
            np.testing.assert_array_equal(np.asarray(array), values)

    def test_a_callback_after_it_sees_what_others_have_added(self):
        model = model_of(*layers()[::2], learning_rate=0.0)
        start = model.get_weights()
        callback, looker = MVCallback(model), Looker()
        fit(model, Adder(callback), callback, looker)
        for at, weight in enumerate(looker.copies):
            batch, number = divmod(at, len(start))
            np.testing.assert_allclose(weight, start[number] + batch + 1, rtol=1e-6)

    def test_layers_that_are_frozen_and_trained_again(self):
        # Of equal shapes: only their places in the state tell them apart.
        model = model_of(
            *(keras.layers.Dense(3, name=name, use_bias=False) for name in "ab"), learning_rate=0.0
        )
        model.layers[1].trainable = False
        model.compile(keras.optimizers.SGD(0.0), "mse")
        start = flat(model)
        callback = MVCallback(model)

        def turn(epoch, logs=None):
            for layer in model.layers:
                layer.trainable = not layer.trainable
            model.layers[epoch % 2].kernel.assign(model.layers[epoch % 2].kernel + 10)

        def check(batch, logs=None):
            model.jax_state_sync()
            np.testing.assert_array_equal(flat(model), held(callback.manager))

        turns = keras.callbacks.LambdaCallback(on_epoch_begin=turn, on_train_batch_end=check)
        fit(model, Adder(callback), callback, turns, epochs=2)
        np.testing.assert_allclose(flat(model), start + 10 + 12, rtol=1e-5)
        self.check_equal(model, callback.manager)


if __name__ == "__main__":
    unittest.main()
