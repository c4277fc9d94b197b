"""Embedding layers of Keras whose rows are in a table, with one worker."""

import copy
import functools
import json
import warnings

import numpy as np
import pytest
from folders import FolderTestCase
from keras_models import HAS_KERAS, KerasTestCase

import multiverso as mv

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]

if HAS_KERAS:
    import keras

    from multiverso.keras_ext import MVCallback, shard
    from multiverso.keras_ext.layers import Embedding, layers_of

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
    def check_like_keras(self, make_optimizer, tolerance=1e-5, of_table=None, **options):
        """Compare a training with that of Keras' own layer with the same optimizer."""
        own = keras.layers.Embedding(ROWS, COLUMNS)
        reference = model_of(own, make_optimizer(), **options)
        own.set_weights([START])
        expected = fit(reference)
        table = table_of(**(of_table or {}))
        model = model_of(Embedding(table), make_optimizer(), **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "the optimizer's")
            losses = fit(model, MVCallback(model))
        np.testing.assert_allclose(losses, expected, rtol=tolerance)
        np.testing.assert_allclose(table.get(), own.get_weights()[0], atol=tolerance)
        np.testing.assert_allclose(
            model.predict(IDS, verbose=0), reference.predict(IDS, verbose=0), atol=10 * tolerance
        )

    def test_trains_in_fit_as_the_layer_of_keras(self):
        def scaled():
            return keras.optimizers.LossScaleOptimizer(
                keras.optimizers.SGD(0.1), initial_scale=2.0**10, dynamic_growth_steps=3
            )

        sgd = functools.partial(keras.optimizers.SGD, 0.1)
        for make_optimizer, options in (
            (sgd, {}),
            (functools.partial(sgd, gradient_accumulation_steps=2), {}),
            (scaled, {"auto_scale_loss": False}),
            (functools.partial(sgd, loss_scale_factor=16.0), {"auto_scale_loss": False}),
        ):
            with self.subTest(make_optimizer):
                self.check_like_keras(make_optimizer, **options)

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
            found = self.fit_with_scale(row, weight, 2.0**120, batches=1)
            self.assertEqual(found, (2.0**119, [[row, row]]))
        # An accumulation lacks the skipped batch only.
        options = {"batches": 2, "gradient_accumulation_steps": 2}
        found = self.fit_with_scale(0.0, 2.0**10, 2.0**118, **options)
        self.assertEqual(found, (2.0**117, [[-(2.0**6)] * 2]))

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

    def test_arrays_in_the_other_order_of_bytes_are_converted(self):
        ids = IDS.astype(IDS.dtype.newbyteorder())
        result = keras.ops.convert_to_numpy(Embedding(table_of())(ids))
        np.testing.assert_array_equal(result, START[IDS])
        x, (y,) = shard(ids, [TARGETS.astype(TARGETS.dtype.newbyteorder())])
        self.assertTrue(x.dtype.isnative and y.dtype.isnative)
        np.testing.assert_array_equal(x, IDS)
        np.testing.assert_array_equal(y, TARGETS)

    def test_has_no_other_weights_than_a_zero(self):
        model = model_of(layer := Embedding(table_of()))
        fit(model, MVCallback(model))
        self.assertEqual([float(v) for v in layer.get_weights()], [0.0])
        path = self.folder / "model.weights.h5"
        model.save_weights(path)
        again = model_of(Embedding(layer.table))
        again.load_weights(path)
        np.testing.assert_array_equal(again.get_weights()[1], model.get_weights()[1])

    def test_evaluation_and_frozen_layers_change_nothing(self):
        model = model_of(Embedding(table := table_of()))
        model.evaluate(IDS, TARGETS, verbose=0)
        self.assertTrue(model.layers[1].step())
        model.layers[1].trainable = False
        model.compile(keras.optimizers.SGD(0.1), "mse")
        fit(model, MVCallback(model))
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
            Embedding.from_config(json.loads(json.dumps(config)))
        again = Embedding.from_config({**config, "table": layer.table})
        self.assertEqual((again.name, again.output_dim), ("words", COLUMNS))

    def test_clones_share_the_table(self):
        table = table_of()
        model = model_of(Embedding(table, mask_zero=True, combiner="sum"))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # that a file cannot contain the rows
            clone = keras.models.clone_model(model)
        (layer,) = layers_of(clone)
        self.assertIs(layer.table, table)
        self.assertIsNot(layer, layers_of(model)[0])
        self.assertEqual((layer.mask_zero, layer.combiner), (True, "sum"))
        self.assertIs(copy.deepcopy(layer.get_config())["table"].table, table)

    def test_saving_a_whole_model_warns_that_the_rows_are_not_in_the_file(self):
        model = model_of(Embedding(table_of(name="words")))
        path = self.folder / "model.keras"
        with self.assertWarnsRegex(UserWarning, "cannot contain the rows of .*words.*save_weights"):
            model.save(path)
        with self.assertRaisesRegex(TypeError, "a file cannot contain the table 'words'"):
            keras.models.load_model(path)

    def check_combiner(self, combiner, mask_zero, weights):
        """Compare outputs and gradients with those of Keras' layer and its operations."""
        ops = keras.ops
        ids = np.array([[1, 2, 0], [3, 3, 4], [0, 0, 0]], "int32")
        own = keras.layers.Embedding(ROWS, COLUMNS)
        own.build()
        own.set_weights([START])

        def combined(rows):
            factors = np.ones(ids.shape, "float32") if weights is None else weights
            factors = factors * (ids != 0) if mask_zero else factors
            total = (rows * factors[..., None]).sum(-2)
            divisor = {
                "sum": np.ones((3, 1)),
                "mean": factors.sum(-1, keepdims=True),
                "sqrtn": np.sqrt((factors**2).sum(-1, keepdims=True)),
            }[combiner]
            return total / np.where(divisor == 0, 1, divisor)

        table = table_of(learning_rate=1.0)
        inputs = keras.Input((3,), dtype="int32")
        layer = Embedding(table, mask_zero, combiner)
        given = {} if weights is None else {"weights": ops.convert_to_tensor(weights)}
        expected = combined(ops.convert_to_numpy(own(ids)))
        np.testing.assert_allclose(
            ops.convert_to_numpy(layer(ids, **given)), expected, rtol=1e-5, atol=1e-6
        )
        self.assertEqual(layer(inputs, **({} if weights is None else given)).shape, (None, COLUMNS))
        self.assertIsNone(layer.compute_mask(ids))
        if weights is None:
            model = keras.Model(inputs, layer(inputs))
            targets = np.ones((3, COLUMNS), "float32")
            model.compile(keras.optimizers.SGD(0.0), "mse")
            model.fit(ids, targets, batch_size=3, verbose=0, callbacks=[MVCallback(model)])
            gradient = 2 * (expected - targets) / expected.size
            changed = START - table.get()
            factors = np.ones(3) if not mask_zero else (ids[0] != 0).astype(float)
            scale = {"sum": 1, "mean": factors.sum(), "sqrtn": factors.sum() ** 0.5}[combiner]
            np.testing.assert_allclose(changed[1], gradient[0] / scale, rtol=1e-4, atol=1e-6)
            self.assertTrue(np.isfinite(changed).all())

    def test_combiners_are_weighted_sums_of_rows(self):
        weights = np.array([[0.5, 2, 1], [1, 1, 3], [1, 2, 3]], "float32")
        for combiner in ("sum", "mean", "sqrtn"):
            for mask_zero in (False, True):
                for given in (None, weights):
                    with self.subTest(combiner, mask_zero=mask_zero, weights=given is not None):
                        self.check_combiner(combiner, mask_zero, given)
        empty = Embedding(table_of(), combiner="mean")(np.zeros((2, 0), "int32"))
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(empty), np.zeros((2, COLUMNS)))

    def test_clipping_that_does_not_reach_the_rows_warns(self):
        for options in ({"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.5}):
            model = model_of(Embedding(table_of(clipvalue=0.25)), keras.optimizers.SGD(**options))
            (option,) = options
            advice = "table's clipnorm or" if "global" in option else f"with {option}=0.5 too"
            with self.assertWarnsRegex(UserWarning, f"{option}=0.5 does not clip .*{advice}"):
                fit(model, MVCallback(model), epochs=1)
        # TensorFlow clips the gradient of each occurrence of a row, and the table their sum.
        if keras.backend.backend() != "tensorflow":
            for clipped in ({"clipvalue": 2.0**-7}, {"clipnorm": 2.0**-4}):
                self.check_like_keras(
                    lambda clipped=clipped: keras.optimizers.SGD(0.1, **clipped), of_table=clipped
                )
