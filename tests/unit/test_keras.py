"""Models of Keras that are kept in step, with one worker, on the backend that Keras has here."""

import importlib.util
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import multiverso as mv

HAS_KERAS = importlib.util.find_spec("keras") is not None
if HAS_KERAS:
    import keras

    from multiverso.keras_ext import KerasParamManager, MVCallback, shard

    # More steps than one per execution are not offered on PyTorch.
    HAS_EXECUTIONS = keras.backend.backend() != "torch"


def model_of(*layers, learning_rate=0.125, **options):
    """Return a compiled model of 3 inputs."""
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.5)
    model.compile(optimizer, "mse", **options)
    return model


def layers():
    return [
        keras.layers.Dense(
            4, activation="tanh", kernel_initializer=keras.initializers.Constant(0.1)
        ),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(0.5)),
    ]


def data(samples=24, dtype="float32"):
    x = np.random.default_rng(1).normal(size=(samples, 3)).astype(dtype)
    return x, x.sum(axis=1, keepdims=True)


def flat(model):
    arrays = [keras.ops.convert_to_numpy(keras.ops.cast(v, "float64")) for v in model.weights]
    return np.concatenate([array.ravel() for array in arrays])


def held(manager):
    return np.concatenate([table.get() for table in manager.tables])


def fit(model, *callbacks, epochs=1, **options):
    """Train on 6 batches in each epoch."""
    x, y = data()
    return model.fit(
        x,
        y,
        batch_size=4,
        epochs=epochs,
        verbose=0,
        shuffle=False,
        callbacks=[*callbacks],
        **options,
    )


@unittest.skipUnless(HAS_KERAS, "needs Keras")
class InSession(unittest.TestCase):
    def setUp(self):
        session = mv.session()
        session.__enter__()
        self.addCleanup(session.__exit__, None, None, None)
        keras.utils.set_random_seed(1)

    def check_equal(self, model, manager):
        np.testing.assert_array_equal(np.sort(flat(model)), np.sort(held(manager)))


class Adder(keras.callbacks.Callback if HAS_KERAS else object):
    """Another worker: adds one to everything after each batch."""

    def __init__(self, callback):
        super().__init__()
        self.tables = callback.manager.tables

    def on_train_batch_end(self, batch, logs=None):
        for table in self.tables:
            table.add(np.ones(table.size))


class TestCallback(InSession):
    def test_it_trains_as_without(self):
        for freq in (1, 4):
            for options in ({}, {"steps_per_execution": 3})[: 1 + HAS_EXECUTIONS]:
                with self.subTest(freq=freq, **options):
                    alone, together = model_of(*layers(), **options), model_of(*layers(), **options)
                    callback = MVCallback(together, freq=freq)
                    for epochs in (1, 2):  # fit is called twice
                        fit(alone, epochs=epochs)
                        fit(together, callback, epochs=epochs)
                    np.testing.assert_allclose(flat(together), flat(alone), rtol=1e-4, atol=1e-5)
                    self.check_equal(together, callback.manager)

    def gains(self, freq=1, epochs=1, **options):
        """Return by how much the weights have grown, where they only do by what others add."""
        model = model_of(*layers()[::2], learning_rate=0.0, **options)
        start = flat(model)
        callback = MVCallback(model, freq)
        fit(model, Adder(callback), callback, epochs=epochs)
        self.check_equal(model, callback.manager)
        return set((flat(model) - start).round(5).tolist())

    def test_what_others_add_arrives_while_it_trains(self):
        self.assertEqual(self.gains(), {6.0})
        self.assertEqual(self.gains(freq=4, epochs=2), {12.0})
        if HAS_EXECUTIONS:
            self.assertEqual(self.gains(steps_per_execution=2), {3.0})

    def test_it_syncs_every_freq_batches_and_at_the_end(self):
        for freq, options, times in (
            (1, {}, 6),
            (4, {}, 1),
            (6, {}, 1),
            (7, {}, 0),
            (3, {"steps_per_execution": 2}, 2),
            (1, {"steps_per_execution": 6}, 1),
        ):
            if options and not HAS_EXECUTIONS:
                continue
            with self.subTest(freq=freq, **options):
                model = model_of(*layers(), **options)
                callback = MVCallback(model, freq)
                sync = callback.manager.sync_all_param
                with mock.patch.object(callback.manager, "sync_all_param", side_effect=sync) as it:
                    fit(model, callback)
                self.assertEqual(it.call_count, times + 1)

    def test_batches_are_counted_over_epochs(self):
        model = model_of(*layers())
        callback = MVCallback(model, np.int64(4))
        sync = callback.manager.sync_all_param
        with mock.patch.object(callback.manager, "sync_all_param", side_effect=sync) as it:
            fit(model, callback, epochs=2)
        self.assertEqual(it.call_count, 3 + 1)

    def test_mixed_and_other_precision(self):
        for policy in ("mixed_float16", "mixed_bfloat16", "bfloat16", "float16"):
            with self.subTest(policy):
                before = keras.config.dtype_policy()
                keras.config.set_dtype_policy(policy)
                try:
                    model = model_of(*layers())
                finally:
                    keras.config.set_dtype_policy(before)
                callback = MVCallback(model)
                fit(model, callback)
                self.assertEqual(
                    {table.dtype.name for table in callback.manager.tables}, {"float32"}
                )
                np.testing.assert_allclose(
                    np.sort(held(callback.manager)), np.sort(flat(model)), rtol=1e-2, atol=1e-6
                )

    def test_a_part_of_what_is_trained(self):
        inner = keras.Sequential([keras.layers.Input((3,)), *layers()[::2]])
        outer = model_of(inner, keras.layers.Dense(1))
        start = flat(inner)
        callback = MVCallback(inner)
        fit(outer, callback)
        self.check_equal(inner, callback.manager)
        self.assertFalse(np.array_equal(flat(inner), start))

    def test_a_model_that_is_not_trained(self):
        callback = MVCallback(model_of(*layers()))
        with self.assertRaisesRegex(ValueError, "which has none of its parameters"):
            fit(model_of(*layers()), callback)

    def test_overlapped_exchanges(self):
        alone, together = model_of(*layers()), model_of(*layers())
        callback = MVCallback(together, overlap=True)
        for _ in range(2):
            fit(alone)
            fit(together, callback)
        np.testing.assert_allclose(flat(together), flat(alone), rtol=1e-4, atol=1e-5)
        self.check_equal(together, callback.manager)

    def test_metrics(self):
        model = model_of(*layers(), metrics=["mae"])
        alone = fit(model_of(*layers(), metrics=["mae"]), validation_data=data()).history
        callback = MVCallback(model, average_metrics=True)
        history = fit(model, callback, validation_data=data()).history
        self.assertEqual(history.keys(), alone.keys())
        for name, values in history.items():
            np.testing.assert_allclose(values, alone[name], rtol=1e-4)

    def test_weights_restored_from_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "some.weights.h5")
            trained = keras.Sequential([keras.layers.Input((3,)), *layers()])
            trained.set_weights([weight - 2 for weight in trained.get_weights()])
            trained.save_weights(path)
            model = model_of(*layers(), learning_rate=0.0)
            callback = MVCallback(model, sync_non_trainable=False)
            for restores in (
                lambda: model.load_weights(path),
                lambda: fit(
                    model,
                    callback,
                    keras.callbacks.LambdaCallback(
                        on_train_begin=lambda logs: model.load_weights(path)
                    ),
                ),
            ):
                restores()
                fit(model, callback)
                kernel = trained.layers[0].kernel
                np.testing.assert_allclose(model.layers[0].kernel, kernel, rtol=1e-6)

    def test_saving_works_as_before(self):
        model = model_of(*layers())
        fit(model, MVCallback(model))
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder, "model.keras"))
            twin = keras.models.load_model(Path(folder, "model.keras"))
        np.testing.assert_array_equal(flat(twin), flat(model))
        callback = MVCallback(twin)
        fit(twin, callback)
        self.check_equal(twin, callback.manager)


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


class TestManager(InSession):
    def test_weights_share_no_memory_with_what_the_next_sync_works_on(self):
        # Sizes that are multiples of 64 bytes: views of them would be as good as copies.
        for sizes in ((16, 32), (16, 8), (16,)):
            model = model_of(*(keras.layers.Dense(size, use_bias=False) for size in sizes))
            manager = KerasParamManager(model)
            manager.sync_all_param()
            before = flat(model)
            for group in manager._sync._groups:
                if hasattr(group, "_staging"):  # not where the weights are changed in place
                    group._staging.flat += 1
            np.testing.assert_array_equal(flat(model), before)

    def test_statistics(self):
        for choice, size in (("average", 37), ("master", 37), (False, 29)):
            with self.subTest(choice):
                model = model_of(*layers())
                manager = KerasParamManager(model, choice)
                self.assertEqual(sum(table.size for table in manager.tables), size)
                fit(model)
                before = flat(model)
                manager.sync_all_param()
                np.testing.assert_allclose(flat(model), before, rtol=1e-4, atol=1e-6)

    def test_frozen_layers_are_parameters_and_seeds_are_not(self):
        model = model_of(*layers(), keras.layers.Dropout(0.5))
        model.layers[0].trainable = False
        manager = KerasParamManager(model, False)
        self.assertEqual(sum(table.size for table in manager.tables), 29)
        model.layers[0].trainable = True
        model.compile("sgd", "mse")
        callback = MVCallback(model)
        fit(model, callback)
        self.check_equal(model, callback.manager)

    def test_gains_of_the_program(self):
        model = model_of(*layers())
        manager = KerasParamManager(model)
        start = flat(model)
        model.set_weights([weight + 1 for weight in model.get_weights()])
        manager.sync_all_param()
        manager.tables[0].add(np.ones(manager.tables[0].size))
        manager.sync_all_param()
        np.testing.assert_allclose(flat(model), start + 2, rtol=1e-6)
        self.check_equal(model, manager)

    def test_what_is_wrong(self):
        model = model_of(*layers())
        for error, text, make in (
            (TypeError, "expected a Keras model, received list", lambda: KerasParamManager([])),
            (ValueError, "sync_non_trainable", lambda: KerasParamManager(model, "mean")),
            (ValueError, "received a Sequential", lambda: MVCallback(keras.Sequential())),
            (
                ValueError,
                "build it",
                lambda: MVCallback(keras.Sequential([keras.layers.Dense(1)])),
            ),
            (ValueError, "expected parameters", lambda: KerasParamManager(model_of())),
            (TypeError, "overlap: expected", lambda: MVCallback(model, overlap=1)),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                make()
        for freq in (0, -1, 1.5, True, "1", None):
            with self.subTest(freq), self.assertRaisesRegex(ValueError, "freq: expected an int"):
                MVCallback(model, freq)
        mv.barrier()


class TestShard(InSession):
    def test_one_worker_has_all(self):
        x, y = data()
        mine = shard(x, y, None)
        np.testing.assert_array_equal(mine[0], x)
        self.assertTrue(np.shares_memory(mine[0], x))
        self.assertIsNone(mine[2])
        self.assertEqual(shard({"a": [1, 2], "b": ("x", "y")}), {"a": [1, 2], "b": ("x", "y")})
        self.assertEqual(len(shard([x, y])), 2)

    def test_what_is_wrong(self):
        for arrays in ([], [np.zeros(3), np.zeros(4)], [[np.zeros(3), np.zeros(4)]], [np.zeros(0)]):
            with self.subTest(arrays), self.assertRaisesRegex(ValueError, "shard: expected"):
                shard(*arrays)


if __name__ == "__main__":
    unittest.main()
