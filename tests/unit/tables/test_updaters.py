"""The updaters: examples of their pages, their options, and their gradients in `ParamSync`.

That tables agree with the formulas in all else is checked by test_machine.py.
"""

import itertools
import math
import unittest
from functools import partial

import numpy as np
from sessions import SessionTestCase

import multiverso as mv
from machine.formulas import ARRAY_OPTIONS, OPTIONS
from machine.model import Model
from multiverso.sync import ParamSync
from multiverso.tables._updaters import UPDATERS

FLOATS = ("float32", "float64")
OPTIMIZERS = [name for name in ARRAY_OPTIONS if name != "add"]


def assert_same_bits(actual, expected):
    np.testing.assert_array_equal(actual, expected)
    assert actual.tobytes() == expected.tobytes(), "equal, but not bitwise identical"


class TestFormulas(SessionTestCase):
    def test_first_update_is_finite_for_any_gradient(self):
        values = (0.0, -0.0, 1e-30, -3.0, 1e15)
        for name, dtype, value in itertools.product(OPTIMIZERS, FLOATS, values):
            least = {"initial_accumulator_value": 0, "epsilon": 1e-37}
            options = {key: least[key] for key in least.keys() & UPDATERS[name][1]}
            table = mv.ArrayTableHandler(3, dtype=dtype, updater=name, **options)
            with self.subTest(updater=name, dtype=dtype, value=value):
                self.assertTrue(np.isfinite(table.add_get([value] * 3)).all())

    def test_ftrl_takes_every_power(self):
        rng = np.random.default_rng(6)
        for power, dtype in itertools.product((0, -0.25, -1), FLOATS):
            options = OPTIONS["ftrl"] | {"learning_rate_power": power}
            start = rng.standard_normal(100).astype(dtype)
            table = mv.ArrayTableHandler(100, start, dtype=dtype, updater="ftrl", **options)
            model = Model("ftrl", start[None], **options)
            for _ in range(5):
                delta = rng.standard_normal(100).astype(dtype)
                model.add(delta[None])
                table.add(delta)
            # The last bit of a power differs between libraries.
            tolerance = {"float32": 1e-4, "float64": 1e-12}[dtype]
            np.testing.assert_allclose(table.get(), model.values[0], tolerance, tolerance)

    def test_norm_that_is_not_finite_makes_the_gradient_that_of_keras(self):
        for value, expected in ((math.nan, [math.nan] * 2), (math.inf, [math.nan, 0])):
            table = mv.ArrayTableHandler(2, updater="sgd", clipnorm=1)
            np.testing.assert_array_equal(table.add_get([value, 1]), expected)

    def test_row_wise_updaters_need_short_rows(self):
        for name in ("rowwise_adagrad", "rowwise_adam"):
            with self.assertRaisesRegex(ValueError, "received 2049 columns"):
                mv.MatrixTableHandler(2, 2049, updater=name)


class TestOptions(SessionTestCase):
    def test_options_have_the_documented_defaults(self):
        adaptive = {"learning_rate": 0.001, "epsilon": 1e-7}
        betas = {"beta_1": 0.9, "beta_2": 0.999}
        for name, expected in {
            "add": {},
            "sgd": {"learning_rate": 0.01},
            "momentum": {"learning_rate": 0.01, "momentum": 0.9},
            "nesterov": {"learning_rate": 0.01, "momentum": 0.9},
            "adagrad": adaptive | {"initial_accumulator_value": 0.1},
            "rmsprop": adaptive | {"rho": 0.9, "momentum": 0.0},
            "adadelta": adaptive | {"rho": 0.95},
            "adam": adaptive | betas,
            "adamw": adaptive | betas | {"weight_decay": 0.004},
            "amsgrad": adaptive | betas,
            "rowwise_adagrad": adaptive,
            "rowwise_adam": adaptive | betas,
            "easgd": {"elastic_force": 0.1},
            "dcasgd": {"learning_rate": 0.01, "variance_control": 0.04},
            "ftrl": {
                "learning_rate": 0.001,
                "learning_rate_power": -0.5,
                "initial_accumulator_value": 0.1,
                "l1_regularization_strength": 0,
                "l2_regularization_strength": 0,
                "l2_shrinkage_regularization_strength": 0,
                "beta": 0,
            },
            "dcasgda": {
                "learning_rate": 0.01,
                "variance_control": 2,
                "rho": 0.95,
                "epsilon": 1e-7,
            },
        }.items():
            is_of_arrays = name in ARRAY_OPTIONS
            table = (mv.ArrayTable if is_of_arrays else partial(mv.MatrixTable, 1))(1, updater=name)
            self.assertEqual((table.updater, table.options), (name, expected))
        self.assertEqual(set(UPDATERS), set(OPTIONS))
        table = mv.ArrayTableHandler(1, updater="adam", beta_1=None, beta_2=0.5)
        self.assertEqual((table.options["beta_1"], table.options["beta_2"]), (0.9, 0.5))

    def test_out_of_range_options_change_nothing(self):
        ranges = {
            "outer_epsilon": ("rmsprop", (-1, -1e-300), "at least 0"),
            "clipnorm": ("adam", (-1, -1e-300), "at least 0"),
            "clipvalue": ("adam", (-1, -1e-300), "at least 0"),
            "momentum": ("momentum", (-0.1, 1.1), "0 to 1"),
            "rho": ("rmsprop", (-0.1, 1), "0 to less than 1"),
            "beta_1": ("adam", (-0.1, 1), "0 to less than 1"),
            "beta_2": ("adam", (-0.1, 1.5), "0 to less than 1"),
            "epsilon": ("adam", (0, -1, 1e-38), "at least 1e-37"),
            "initial_accumulator_value": ("adagrad", (-1,), "at least 0"),
            "learning_rate": ("ftrl", (-1, 0, 1e-38), "at least 1e-37"),
            "learning_rate_power": ("ftrl", (0.1,), "at most 0"),
            "l1_regularization_strength": ("ftrl", (-1,), "at least 0"),
            "l2_regularization_strength": ("ftrl", (-1,), "at least 0"),
            "l2_shrinkage_regularization_strength": ("ftrl", (-1,), "at least 0"),
            "beta": ("ftrl", (-1,), "at least 0"),
            "elastic_force": ("easgd", (-0.1, 1.1), "0 to 1"),
            "variance_control": ("dcasgd", (-0.1,), "at least 0"),
        }
        for option, (name, wrong, expected) in ranges.items():
            table = mv.ArrayTableHandler(1, updater=name)
            before = table.options
            for value in (*wrong, math.nan, math.inf):
                message = f"{option}: expected.*(finite number|{expected}), received"
                with self.assertRaisesRegex(ValueError, message):
                    mv.ArrayTableHandler(1, updater=name, **{option: value})
                other = {"learning_rate": 7} if "learning_rate" in before else {}
                with self.assertRaisesRegex(ValueError, message):
                    table.set_option(**(other | {option: value}))
                self.assertEqual(table.options, before)

    def test_arrays_without_dimensions_are_numbers(self):
        for rate, count in ((np.array(0.25), np.array(3)), (np.float16(0.25), np.uint8(3))):
            table = mv.ArrayTableHandler(count, updater="sgd", learning_rate=rate)
            table.add([1, 2, 4])
            table.set_option(learning_rate=rate * 2)
            self.assertEqual(table.add_get([1, 0, 0]).tolist(), [-0.75, -0.5, -1])
        for wrong in map(np.array, ([0.25], True, "1", 1j, None)):
            with self.assertRaisesRegex(TypeError, "learning_rate: expected a finite number"):
                table.set_option(learning_rate=wrong)
            with self.assertRaisesRegex(TypeError, "size: expected an int"):
                mv.ArrayTableHandler(wrong)
        with self.assertRaisesRegex(ValueError, "learning_rate: expected a finite number"):
            table.set_option(learning_rate=np.array(np.nan))
        initial = mv.initializers.RandomUniform(np.array(0.5), np.array(1.0), seed=np.array(7))
        rows = mv.MatrixTableHandler(4, np.array(2), initial).get()
        same = mv.initializers.RandomUniform(0.5, 1.0, seed=7)
        assert_same_bits(rows, mv.MatrixTableHandler(4, 2, same).get())


class TestDuplicateRows(SessionTestCase):
    def test_easgd_rejects_duplicate_rows(self):
        matrix = mv.MatrixTableHandler(4, 2, 1, updater="easgd", name="center")
        with self.assertRaisesRegex(ValueError, r"'center'.*row_ids\[1\].*'easgd'.*row 3 more"):
            matrix.add(np.zeros((4, 2)), [0, 3, 1, 3])
        assert_same_bits(matrix.get(), np.ones((4, 2), np.float32))


class TestModes(unittest.TestCase):
    def test_clipnorm_cannot_be_set_in_sync_mode(self):
        with mv.session(sync=True):
            table = mv.ArrayTableHandler(2, updater="adam", clipnorm=0)
            before = table.options
            with self.assertRaisesRegex(ValueError, "clipnorm: expected 0 in sync mode"):
                table.set_option(learning_rate=7, clipnorm=2)
            self.assertEqual(table.options, before)
        with mv.session(staleness=1):
            table = mv.ArrayTableHandler(2, updater="sgd", learning_rate=1, clipnorm=5)
            self.assertEqual(table.add_get([6, 8]).tolist(), [-3, -4])


class TestParamSync(unittest.TestCase):
    def test_clipnorm_that_is_set_later_is_refused(self):
        array = np.zeros(2, np.float32)
        with mv.session():
            sync = ParamSync([array], updater="sgd", learning_rate=1)
            array += 8
            sync.tables[0].set_option(clipnorm=5)
            with self.assertRaisesRegex(ValueError, "clipnorm: expected 0 for a sync"):
                sync.sync()
            sync.tables[0].set_option(clipnorm=0)
            sync.sync()
            self.assertEqual(sync.tables[0].get().tolist(), [8, 8])

    def test_optimizers_take_the_negative_change_as_gradient(self):
        rng = np.random.default_rng(5)
        for name in OPTIMIZERS:
            if name == "easgd":
                continue
            for mode in ({}, {"sync": True})[: 1 if name.startswith("dcasgd") else 2]:
                with self.subTest(updater=name, mode=mode), mv.session(**mode):
                    first, second = rng.standard_normal(30_001), rng.standard_normal((2, 3))
                    start = np.concatenate([first, second.ravel()])[None]
                    sync = ParamSync([first, second], updater=name, **OPTIONS[name])
                    model = Model(name, start, **OPTIONS[name])
                    for _ in range(4):
                        first += rng.standard_normal(30_001)
                        second += rng.standard_normal((2, 3))
                        now = np.concatenate([first, second.ravel()])[None]
                        model.add(model.values - now)
                        sync.sync()
                        assert_same_bits(np.concatenate([first, second.ravel()]), model.values[0])
