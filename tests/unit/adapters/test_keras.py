"""MVCallback synchronizes Keras models during training, on the backend of this environment."""

import tempfile
import threading
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from keras_models import (
    HAS_KERAS,
    Adder,
    Counter,
    KerasTestCase,
    data,
    fit,
    flat,
    layers,
    model_of,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]

if HAS_KERAS:
    import keras

    from multiverso.keras_ext import MVCallback

    # Whether Keras can run several steps per execution, which it cannot on PyTorch.
    HAS_STEPS_PER_EXECUTION = keras.backend.backend() != "torch"


class TestCallback(KerasTestCase):
    def test_one_worker_trains_as_without_the_callback(self):
        for given in ({"freq": 1}, {"freq": 4}, {"overlap": True}):
            for options in ({}, {"steps_per_execution": 3})[: 1 + HAS_STEPS_PER_EXECUTION]:
                with self.subTest(**given, **options):
                    alone, together = model_of(*layers(), **options), model_of(*layers(), **options)
                    callback = MVCallback(together, **given)
                    for epochs in (1, 2):  # fit is called twice
                        fit(alone, epochs=epochs)
                        fit(together, callback, epochs=epochs)
                    np.testing.assert_allclose(flat(together), flat(alone), rtol=1e-4, atol=1e-5)
                    self.check_equal(together, callback.manager)

    def increases(self, freq=1, epochs=1, **options):
        """Return the distinct increases of weights that only another worker changes."""
        model = model_of(*layers()[::2], learning_rate=0.0, **options)
        start = flat(model)
        callback = MVCallback(model, freq)
        fit(model, Adder(callback), callback, epochs=epochs)
        self.check_equal(model, callback.manager)
        return set((flat(model) - start).round(5).tolist())

    def test_deltas_of_others_arrive_during_training(self):
        self.assertEqual(self.increases(), {6.0})
        self.assertEqual(self.increases(freq=4, epochs=2), {12.0})
        if HAS_STEPS_PER_EXECUTION:
            self.assertEqual(self.increases(steps_per_execution=2), {3.0})

    def test_syncs_every_freq_batches_and_at_the_end(self):
        for freq, epochs, options, times in (
            (1, 1, {}, 6),
            (4, 1, {}, 1),
            (6, 1, {}, 1),
            (7, 1, {}, 0),
            (np.int64(4), 2, {}, 3),
            (3, 1, {"steps_per_execution": 2}, 2),
            (1, 1, {"steps_per_execution": 6}, 1),
        ):
            if options and not HAS_STEPS_PER_EXECUTION:
                continue
            with self.subTest(freq=freq, **options):
                model = model_of(*layers(), **options)
                callback = MVCallback(model, freq)
                tensors = callback.manager._sync
                with mock.patch.object(tensors, "_sync", side_effect=tensors._sync) as spy:
                    fit(model, callback, epochs=epochs)
                self.assertEqual(spy.call_count, times + 1)  # one more at the end

    def test_averages_statistics_over_workers(self):
        for dtype in ("float32", "float16"):
            model = model_of(keras.layers.Dense(2), Counter(dtype=dtype))
            with mock.patch("multiverso.sync._shares.Shares.of", return_value=0.5):
                callback = MVCallback(model)  # one of two workers
            fit(model, Adder(callback), Adder(callback), callback, epochs=2)
            # Each of 12 batches adds half of the counter's 2, and 1 of each of two other workers.
            count = keras.ops.convert_to_numpy(model.layers[-1].count)
            np.testing.assert_array_equal(count, np.full(5, 36))
            self.check_equal(model, callback.manager)

    def test_accepts_a_callback_without_a_list(self):
        class Recording(MVCallback):
            def on_train_begin(self, logs=None):
                super().on_train_begin(logs)

            def on_train_batch_end(self, batch, logs=None):
                threads.append(threading.current_thread())
                super().on_train_batch_end(batch, logs)

        for kind in (MVCallback, Recording):
            threads = []
            alone, together = model_of(*layers()), model_of(*layers())
            callback = kind(together)
            options = {"batch_size": 4, "epochs": 20, "shuffle": False, "verbose": 0}
            alone.fit(*data(), **options)
            together.fit(*data(), callbacks=callback, **options)
            self.assertLessEqual(set(threads), {threading.current_thread()})
            np.testing.assert_allclose(flat(together), flat(alone), rtol=1e-4, atol=1e-5)
            self.check_equal(together, callback.manager)

    def test_syncs_a_part_of_the_trained_model(self):
        inner = keras.Sequential([keras.layers.Input((3,)), *layers()[::2]])
        outer = model_of(inner, keras.layers.Dense(1))
        start = flat(inner)
        callback = MVCallback(inner)
        fit(outer, callback)
        self.check_equal(inner, callback.manager)
        self.assertFalse(np.array_equal(flat(inner), start))

    def test_rejects_a_model_that_is_not_in_fit(self):
        callback = MVCallback(model_of(*layers()))
        with self.assertRaisesRegex(ValueError, "which has none of its parameters"):
            fit(model_of(*layers()), callback)

    def test_averages_metrics(self):
        model = model_of(*layers(), metrics=["mae"])
        alone = fit(model_of(*layers(), metrics=["mae"]), validation_data=data()).history
        callback = MVCallback(model, average_metrics=True)
        history = fit(model, callback, validation_data=data()).history
        self.assertEqual(history.keys(), alone.keys())
        for name, values in history.items():
            np.testing.assert_allclose(values, alone[name], rtol=1e-4)

    def test_continues_from_weights_restored_from_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "some.weights.h5")
            trained = keras.Sequential([keras.layers.Input((3,)), *layers()])
            trained.set_weights([weight - 2 for weight in trained.get_weights()])
            trained.save_weights(path)
            model = model_of(*layers(), learning_rate=0.0)
            callback = MVCallback(model, sync_non_trainable=False)
            restore = keras.callbacks.LambdaCallback(
                on_train_begin=lambda logs: model.load_weights(path)
            )
            for restores in (
                lambda: model.load_weights(path),
                lambda: fit(model, callback, restore),
            ):
                restores()
                fit(model, callback)
                kernel = trained.layers[0].kernel
                np.testing.assert_allclose(model.layers[0].kernel, kernel, rtol=1e-6)

    def test_saved_model_can_be_loaded_and_synced(self):
        model = model_of(*layers())
        fit(model, MVCallback(model))
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder, "model.keras"))
            twin = keras.models.load_model(Path(folder, "model.keras"))
        np.testing.assert_array_equal(flat(twin), flat(model))
        callback = MVCallback(twin)
        fit(twin, callback)
        self.check_equal(twin, callback.manager)
