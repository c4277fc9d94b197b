"""The updaters make the same steps as the optimizers of Keras and PyTorch."""

import unittest

import numpy as np
import pytest
from requirements import is_installed, needs
from sessions import SessionTestCase
from some_keras import BACKEND, import_keras

import multiverso as mv

pytestmark = pytest.mark.frameworks

if is_installed("torch"):
    import torch

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


def random_options(rng, name, decoupled):
    """Return options of an optimizer of `torch.optim` whose steps an updater makes."""
    rate, epsilon, keep = 10.0 ** rng.uniform(-3, -1), 10.0 ** rng.uniform(-8, -1), rng.random()
    decay = {"weight_decay": rng.random()} if rng.random() < 0.5 else {}
    momentum = rng.choice([0.0, 0.5, 0.9])
    adam = {"lr": rate, "betas": (keep * 0.95, rng.uniform(0.5, 0.9999)), "eps": epsilon}
    adam |= {"amsgrad": bool(rng.random() < 0.5)}
    return {
        "SGD": lambda: {"lr": rate} | (decay if momentum == 0 else {"momentum": momentum}),
        "Adam": lambda: adam | (decay | {"decoupled_weight_decay": True} if decoupled else {}),
        "AdamW": lambda: adam | decay,
        "Adagrad": lambda: {
            "lr": rate,
            "eps": epsilon,
            "initial_accumulator_value": rng.choice([0.0, 0.3]),
        },
        "RMSprop": lambda: {"lr": rate, "alpha": keep, "eps": epsilon, "momentum": momentum},
        "Adadelta": lambda: {"lr": rate, "rho": keep, "eps": epsilon},
    }[name]()


class TorchTraining:
    """An optimizer of PyTorch and its parameter."""

    read = mv.updaters.from_torch

    def __init__(self, name, start, options):
        self.parameter = torch.nn.Parameter(torch.tensor(start))
        self.optimizer = getattr(torch.optim, name)([self.parameter], **options)

    def step(self, gradient):
        self.parameter.grad = torch.tensor(gradient)
        self.optimizer.step()

    def value(self):
        return self.parameter.detach().numpy()


class KerasTraining:
    """An optimizer of Keras, by the name of its updater, and its variable."""

    read = mv.updaters.from_keras

    def __init__(self, name, start, options):
        self.keras = import_keras()
        class_name, _, own = OPTIMIZERS[name]
        self.variable = self.keras.Variable(start, dtype=start.dtype.name)
        self.optimizer = getattr(self.keras.optimizers, class_name)(**options, **own)

    def step(self, gradient):
        self.optimizer.apply([self.keras.ops.convert_to_tensor(gradient)], [self.variable])

    def value(self):
        return self.keras.ops.convert_to_numpy(self.variable)


class OptimizerTestCase(SessionTestCase):
    def check(self, kind, name, dtype, options, tolerance, seed=7):
        """Compare a table with the parameter of an optimizer over steps of random gradients."""
        rng = np.random.default_rng(seed)
        start = rng.standard_normal((50, 4)).astype(dtype)
        training = kind(name, start, options)
        updater, found = kind.read(training.optimizer)
        chosen = [found]
        if kind is KerasTraining:  # whose options have the names of the updater's
            self.assertEqual(updater, name)
            chosen.append(options)
        tables = [
            mv.MatrixTableHandler(50, 4, start, dtype=dtype, updater=updater, **given)
            for given in chosen
        ]
        for _ in range(STEPS):
            gradient = (rng.standard_normal((50, 4)) * 10.0 ** rng.integers(-6, 2)).astype(dtype)
            training.step(gradient)
            for table in tables:
                table.add(gradient)
        expected = training.value()
        self.assertGreater(np.abs(expected - start).max(), 1e-6)
        for table in tables:
            error = np.abs(table.get() - expected).max() / np.abs(expected).max()
            self.assertLessEqual(error, tolerance)
        return training


@unittest.skipUnless(is_installed("keras") and BACKEND, "needs Keras and a backend")
class TestAgainstKeras(OptimizerTestCase):
    def setUp(self):
        super().setUp()
        self.keras = import_keras()

    def test_steps_of_optimizers_are_those_of_their_updaters(self):
        backend = self.keras.backend.backend()
        rng = np.random.default_rng(5)
        for name, (_, options, _) in OPTIMIZERS.items():
            exact = options | {"learning_rate": RATE}
            drawn = {option: value * rng.uniform(0.5, 1) for option, value in exact.items()}
            drawn |= {"weight_decay": rng.random()} | {"clipvalue": rng.uniform(0.1, 1)}
            # Some of the gradients are within the norm. Keras on PyTorch rounds norms to float32.
            for options in (exact, exact | {"clipnorm": 4.0}, drawn):
                for dtype in ("float32", "float64"):
                    if dtype == "float64" and (backend == "jax" or options is drawn):
                        continue  # JAX has no float64 by default.
                    is_rounded = backend == "torch" and "clipnorm" in options
                    tolerance = TOLERANCES["float32" if is_rounded else dtype]
                    with self.subTest(updater=name, dtype=dtype, options=options):
                        self.check(KerasTraining, name, dtype, options, tolerance)

    def test_defaults_are_those_of_keras(self):
        for name in OPTIMIZERS:
            given = {"momentum": 0.9} if name in ("momentum", "nesterov") else {}
            with self.subTest(updater=name):
                # Small differences of float32 grow where ftrl subtracts nearly equal numbers.
                training = self.check(KerasTraining, name, "float32", given, 1e-4)
                config = training.optimizer.get_config()
                for option, value in mv.ArrayTableHandler(1, updater=name).options.items():
                    self.assertAlmostEqual(config[option], value, places=8, msg=option)

    def test_tensors_and_variables_without_dimensions_are_numbers(self):
        for number in (self.keras.ops.convert_to_tensor(0.5), self.keras.Variable(0.5)):
            table = mv.ArrayTableHandler(1, updater="sgd", learning_rate=number)
            self.assertEqual(table.options, {"learning_rate": 0.5})


@needs("torch")
class TestAgainstTorch(OptimizerTestCase):
    def test_steps_of_optimizers_are_those_of_their_updaters(self):
        rng = np.random.default_rng(11)
        decoupled = "decoupled_weight_decay" in torch.optim.Adam([torch.zeros(1)]).defaults
        rows = [("SGD", {"lr": torch.tensor(0.25), "momentum": 0.75, "nesterov": True})]
        for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta"):
            rows += [(name, {})]
            rows += [(name, random_options(rng, name, decoupled)) for _ in range(10)]
        for seed, (name, options) in enumerate(rows):
            with self.subTest(name, **options):
                self.check(TorchTraining, name, "float64", options, 1e-9, seed)

    def test_tensors_without_dimensions_are_numbers(self):
        options = {"learning_rate": torch.tensor(0.5, dtype=torch.bfloat16), "momentum": 0.0}
        table = mv.ArrayTableHandler(torch.tensor(2), updater="momentum", **options)
        table.set_option(learning_rate=torch.nn.Parameter(torch.tensor(2.0)))
        self.assertEqual(table.add_get([1, 2]).tolist(), [-2, -4])
