"""Embedding layers of Keras whose rows are in a table, with one worker."""

import numpy as np
import pytest
from folders import FolderTestCase
from keras_models import HAS_KERAS, KerasTestCase

import multiverso as mv

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]

if HAS_KERAS:
    import keras

    from multiverso.keras_ext import MVCallback
    from multiverso.keras_ext.layers import Embedding

ROWS, COLUMNS = 30, 4
START = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")
IDS = np.random.default_rng(1).integers(0, ROWS, (32, 3)).astype("int32")
TARGETS = np.random.default_rng(2).standard_normal((32, 1)).astype("float32")


def table_of(learning_rate=0.1, **options):
    return mv.MatrixTableHandler(
        ROWS, COLUMNS, START, updater="sgd", learning_rate=learning_rate, **options
    )


def model_of(embedding, optimizer=None, **options):
    """Return a compiled model whose other weights are always the same."""
    inputs = keras.Input((3,), dtype="int32")
    dense = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(0.3))
    model = keras.Model(inputs, dense(keras.layers.Flatten()(embedding(inputs))))
    model.compile(optimizer or keras.optimizers.SGD(0.1), "mse", **options)
    return model


def fit(model, *callbacks, epochs=2):
    options = {"batch_size": 8, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model.fit(IDS, TARGETS, callbacks=list(callbacks), **options).history["loss"]


class TestEmbedding(FolderTestCase, KerasTestCase):
    def check_like_keras(self, make_optimizer=lambda: None, tolerance=1e-5, **options):
        """Compare a training with that of Keras' own layer with the same optimizer."""
        own = keras.layers.Embedding(ROWS, COLUMNS)
        reference = model_of(own, make_optimizer(), **options)
        own.set_weights([START])
        expected = fit(reference)
        table = table_of()
        model = model_of(Embedding(table), make_optimizer(), **options)
        losses = fit(model, MVCallback(model))
        np.testing.assert_allclose(losses, expected, rtol=tolerance)
        np.testing.assert_allclose(table.get(), own.get_weights()[0], atol=tolerance)
        np.testing.assert_allclose(
            model.predict(IDS, verbose=0), reference.predict(IDS, verbose=0), atol=10 * tolerance
        )

    def test_trains_in_fit_as_the_layer_of_keras(self):
        self.check_like_keras()

    def test_accumulates_gradients_with_the_optimizer(self):
        self.check_like_keras(lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))

    def test_divides_by_the_scale_of_the_loss(self):
        def scaled():
            return keras.optimizers.LossScaleOptimizer(
                keras.optimizers.SGD(0.1), initial_scale=2.0**10, dynamic_growth_steps=3
            )

        self.check_like_keras(scaled, auto_scale_loss=False)

    def test_drops_a_step_whose_gradients_are_not_finite(self):
        table = table_of()
        layer = Embedding(table)
        model = model_of(
            layer,
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**127),
            auto_scale_loss=False,
        )
        model.fit(IDS[:8], TARGETS[:8] * 1e30, verbose=0, callbacks=[MVCallback(model)])
        np.testing.assert_array_equal(table.get(), START)

    def test_accumulation_goes_on_in_the_next_fit(self):
        def accumulating():
            return keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)

        own = keras.layers.Embedding(ROWS, COLUMNS)
        reference = model_of(own, accumulating())
        own.set_weights([START])
        table = table_of()
        model = model_of(Embedding(table), accumulating())
        for _ in range(3):  # of four batches each
            fit(reference, epochs=1)
            fit(model, MVCallback(model), epochs=1)
            np.testing.assert_allclose(table.get(), own.get_weights()[0], atol=1e-5)

    def fit_with_scale(self, row, weight, scale, batches, **options):
        """Fit the sum of rows times a weight; return the scale of the loss after it and the row."""
        table = mv.MatrixTableHandler(
            2, 2, np.full((2, 2), row, "float32"), updater="sgd", learning_rate=0.125
        )
        inputs = keras.Input((1,), dtype="int32")
        kernel = keras.initializers.Constant(weight)
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer=kernel)
        model = keras.Model(inputs, dense(keras.layers.Flatten()(Embedding(table)(inputs))))
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.0, **options), initial_scale=scale
        )
        model.compile(optimizer, lambda _, y: keras.ops.sum(y, -1), auto_scale_loss=False)
        ids = np.zeros((batches, 1), np.int32)
        model.fit(ids, ids, batch_size=1, verbose=0, callbacks=[MVCallback(model)])
        return float(keras.ops.convert_to_numpy(optimizer.dynamic_scale)), table.get([0]).tolist()

    def test_rows_and_weights_skip_the_same_batches(self):
        # The gradient of the row is the scale times the weight; that of the weight, times the row.
        for row, weight in ((0.0, 2.0**10), (2.0**10, 0.125)):
            scale, rows = self.fit_with_scale(row, weight, 2.0**120, batches=1)
            self.assertEqual((scale, rows), (2.0**119, [[row, row]]))

    def test_accumulation_lacks_a_skipped_batch_only(self):
        scale, rows = self.fit_with_scale(
            0.0, 2.0**10, 2.0**118, batches=2, gradient_accumulation_steps=2
        )
        self.assertEqual((scale, rows), (2.0**117, [[-(2.0**6)] * 2]))

    def test_ids_are_not_rounded(self):
        table = mv.MatrixTableHandler(3000, 2, updater="sgd")
        table.add(-np.ones((1, 2)), [2999])
        for dtype in ("mixed_bfloat16", "mixed_float16", "float32"):
            layer = Embedding(table, dtype=dtype)
            for ids in (np.array([2999.0], "float32"), np.array([2999])):
                result = keras.ops.convert_to_numpy(keras.ops.cast(layer(ids), "float32"))
                self.assertTrue((result > 0).all(), (dtype, ids.dtype))
        for dtype, model in (
            ("float16", lambda: layer(np.array([1], "float16"))),
            ("bfloat16", lambda: layer(keras.Input((1,), dtype="bfloat16"))),
            (
                "float16",
                lambda: keras.Sequential([Embedding(table, dtype="float16")]).predict(
                    np.array([[1]]), verbose=0
                ),
            ),
        ):
            with self.assertRaisesRegex(TypeError, f"expected integers, received {dtype}"):
                model()

    def test_keys_get_rows_in_training_only(self):
        table = mv.HashTableHandler(COLUMNS, 100, updater="sgd", learning_rate=0.1)
        model = model_of(Embedding(table))
        model.predict(IDS[:4], verbose=0)
        model.evaluate(IDS[:4], TARGETS[:4], verbose=0)
        self.assertEqual(len(table), 0)
        fit(model, MVCallback(model), epochs=1)
        self.assertEqual(len(table), len(np.unique(IDS)))
        self.assertTrue(table.get(np.unique(IDS)).any())
        with self.assertRaisesRegex(TypeError, "expected integers, received float32"):
            Embedding(table)(np.array([1.0], "float32"))
        for place in (table, table_of()):
            with self.assertRaisesRegex(TypeError, "expected integers, received bool"):
                Embedding(place)(np.array([True]))

    def test_has_no_other_weights_than_a_zero(self):
        model = model_of(layer := Embedding(table_of()))
        fit(model, MVCallback(model))
        self.assertEqual([float(v) for v in layer.get_weights()], [0.0])
        path = self.folder / "model.weights.h5"
        model.save_weights(path)
        again = model_of(Embedding(layer.table))
        again.load_weights(path)
        np.testing.assert_array_equal(again.get_weights()[1], model.get_weights()[1])

    def test_only_training_collects_gradients(self):
        table = table_of()
        layer = Embedding(table)
        model = model_of(layer)
        model.predict(IDS, verbose=0)
        model.evaluate(IDS, TARGETS, verbose=0)
        layer.step()
        np.testing.assert_array_equal(table.get(), START)
        layer.trainable = False
        model.compile(keras.optimizers.SGD(0.1), "mse")
        fit(model, MVCallback(model))
        np.testing.assert_array_equal(table.get(), START)

    def test_discarded_gradients_are_not_sent(self):
        table = table_of()
        layer = Embedding(table)
        fit(model_of(layer), epochs=1)
        layer.discard()
        self.assertTrue(layer.step())
        np.testing.assert_array_equal(table.get(), START)

    def test_shapes_dtypes_and_masks(self):
        layer = Embedding(table_of(), mask_zero=True)
        for shape in ((), (5,), (2, 3), (0, 3)):
            for dtype in ("int32", "int64", "float32"):
                ids = np.zeros(shape, dtype)
                result = keras.ops.convert_to_numpy(layer(ids))
                np.testing.assert_array_equal(result, np.broadcast_to(START[0], (*shape, COLUMNS)))
        mask = layer.compute_mask(keras.ops.convert_to_tensor([[0, 3]]))
        self.assertEqual(keras.ops.convert_to_numpy(mask).tolist(), [[False, True]])
        self.assertIsNone(Embedding(layer.table).compute_mask(IDS))
        half = Embedding(layer.table, dtype="mixed_bfloat16")
        self.assertEqual(keras.backend.standardize_dtype(half(IDS).dtype), "bfloat16")

    def test_a_config_does_not_contain_the_table(self):
        layer = Embedding(table_of(name="rows"), name="words")
        config = layer.get_config()
        self.assertEqual((config["table"], config["name"]), ("rows", "words"))
        with self.assertRaisesRegex(TypeError, "a file cannot contain the table 'rows'"):
            Embedding.from_config(config)
        again = Embedding.from_config({**config, "table": layer.table})
        self.assertEqual((again.name, again.output_dim), ("words", COLUMNS))

    def test_rejects_tables_that_take_no_gradients(self):
        with self.assertRaisesRegex(
            TypeError, "expected a MatrixTableHandler or HashTableHandler, received str"
        ):
            Embedding("rows")
        for table in (mv.MatrixTableHandler(2, 2), mv.MatrixTableHandler(2, 2, dtype="int32")):
            with self.assertRaisesRegex(ValueError, "whose updater takes gradients"):
                Embedding(table)
