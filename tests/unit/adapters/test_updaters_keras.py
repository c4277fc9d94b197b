"""The updaters make the same steps as the optimizers of Keras."""

import unittest
from importlib.util import find_spec

import numpy as np
import pytest
from some_keras import BACKEND, import_keras

import multiverso as mv

pytestmark = pytest.mark.frameworks

#: A learning rate that is exact in float32, the dtype in which Keras keeps the rate.
RATE = 2.0**-6
#: An epsilon that is exact in float32.
EPSILON = 2.0**-20

#: For each updater: the optimizer of Keras, the options of both, and options of Keras alone. The
#: options are exact in float32, since Keras on TensorFlow converts them even for float64.
OPTIMIZERS = {
    "sgd": ("SGD", {}, {}),
    "momentum": ("SGD", {"momentum": 0.875}, {}),
    "nesterov": ("SGD", {"momentum": 0.875}, {"nesterov": True}),
    "adagrad": ("Adagrad", {"initial_accumulator_value": 0.1875, "epsilon": EPSILON}, {}),
    "rmsprop": ("RMSprop", {"rho": 0.75, "momentum": 0.5, "epsilon": EPSILON}, {}),
    "adadelta": ("Adadelta", {"rho": 0.875, "epsilon": EPSILON}, {}),
    "adam": ("Adam", {"beta_1": 0.75, "beta_2": 0.984375, "epsilon": EPSILON}, {}),
    "amsgrad": (
        "Adam",
        {"beta_1": 0.75, "beta_2": 0.5, "epsilon": EPSILON},
        {"amsgrad": True},
    ),
    "adamw": (
        "AdamW",
        {"beta_1": 0.75, "beta_2": 0.984375, "epsilon": EPSILON, "weight_decay": 0.0625},
        {},
    ),
    "ftrl": (
        "Ftrl",
        {
            "learning_rate_power": -0.75,
            "initial_accumulator_value": 0.1875,
            "l1_regularization_strength": 0.125,
            "l2_regularization_strength": 0.0625,
            "l2_shrinkage_regularization_strength": 0.03125,
            "beta": 0.5,
        },
        {},
    ),
}
#: The largest error after all steps, relative to the largest parameter.
TOLERANCES = {"float32": 1e-5, "float64": 1e-12}
STEPS = 30


@unittest.skipUnless(find_spec("keras") and BACKEND, "needs Keras and a backend")
class TestAgainstKeras(unittest.TestCase):
    def setUp(self):
        self.keras = import_keras()
        # JAX replaces float64 by float32 by default.
        self.dtypes = ["float32"] if self.keras.backend.backend() == "jax" else list(TOLERANCES)
        mv.init()

    def tearDown(self):
        mv.shutdown()

    def test_same_gradients_result_in_the_same_parameters(self):
        for name, (_, options, _) in OPTIMIZERS.items():
            for dtype in self.dtypes:
                with self.subTest(updater=name, dtype=dtype):
                    self._compare(name, dtype, {"learning_rate": RATE} | options)

    def test_gradients_are_clipped_to_the_norm_of_keras(self):
        # Keras on PyTorch rounds every norm to float32.
        has_exact_norms = self.keras.backend.backend() != "torch"
        for name, (_, options, _) in OPTIMIZERS.items():
            # Some of the gradients are within this norm.
            options = options | {"learning_rate": RATE, "clipnorm": 4.0}
            for dtype in self.dtypes:
                tolerance = TOLERANCES[dtype if has_exact_norms else "float32"]
                with self.subTest(updater=name, dtype=dtype):
                    self._compare(name, dtype, options, tolerance)

    def test_defaults_are_those_of_keras(self):
        for name in OPTIMIZERS:
            given = {"momentum": 0.9} if name in ("momentum", "nesterov") else {}
            with self.subTest(updater=name):
                self._compare(name, "float32", given)
                ours = mv.ArrayTableHandler(1, updater=name).options
                config = self._optimizer(name, given).get_config()
                for option, value in ours.items():
                    self.assertAlmostEqual(config[option], value, places=8, msg=option)

    def test_from_keras_returns_the_updater_of_random_options(self):
        rng = np.random.default_rng(5)
        for number in range(24):
            name = list(OPTIMIZERS)[number % len(OPTIMIZERS)]
            _, options, _ = OPTIMIZERS[name]
            options = {"learning_rate": RATE} | {
                option: value * rng.uniform(0.5, 1) for option, value in options.items()
            }
            extra = {"weight_decay": rng.random()} if rng.random() < 0.5 else {}
            if rng.random() < 0.5:
                extra[str(rng.choice(["clipnorm", "clipvalue"]))] = rng.uniform(0.1, 1)
            with self.subTest(updater=name, options=options | extra):
                self._compare(name, "float32", options | extra)

    def test_tensors_and_variables_without_dimensions_are_numbers(self):
        for number in (self.keras.ops.convert_to_tensor(0.5), self.keras.Variable(0.5)):
            table = mv.ArrayTableHandler(1, updater="sgd", learning_rate=number)
            self.assertEqual(table.options, {"learning_rate": 0.5})

    def _optimizer(self, name, options):
        class_name, _, keras_options = OPTIMIZERS[name]
        return getattr(self.keras.optimizers, class_name)(**options, **keras_options)

    def _compare(self, name, dtype, options, tolerance=None):
        rng = np.random.default_rng(7)
        start = rng.standard_normal((50, 4)).astype(dtype)
        variable = self.keras.Variable(start, dtype=dtype)
        optimizer = self._optimizer(name, options)
        # The options, and those that `from_keras` reads from the optimizer.
        updater, ours = mv.updaters.from_keras(optimizer)
        self.assertEqual(updater, name)
        tables = [
            mv.MatrixTableHandler(50, 4, start, dtype=dtype, updater=name, **given)
            for given in (options, ours)
        ]
        for _ in range(STEPS):
            gradient = (rng.standard_normal((50, 4)) * 10.0 ** rng.integers(-3, 2)).astype(dtype)
            for table in tables:
                table.add(gradient)
            optimizer.apply([self.keras.ops.convert_to_tensor(gradient)], [variable])
        expected = self.keras.ops.convert_to_numpy(variable)
        self.assertGreater(np.abs(expected - start).max(), 0)
        for table in tables:
            error = np.abs(table.get() - expected).max() / np.abs(expected).max()
            self.assertLessEqual(error, tolerance or TOLERANCES[dtype])
