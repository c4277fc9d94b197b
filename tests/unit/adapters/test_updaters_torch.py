"""The updaters make the same steps as the optimizers of PyTorch and FBGEMM."""

import unittest

import numpy as np
import pytest
from requirements import is_installed, needs
from sessions import SessionTestCase

import multiverso as mv

pytestmark = pytest.mark.frameworks

if is_installed("torch"):
    import torch

STEPS = 25
ROWS, COLUMNS = 20, 4


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


@needs("torch")
class TestAgainstTorch(SessionTestCase):
    def check_steps(self, rng, make_optimizer):
        """Compare a table with the parameter of an optimizer over steps of random gradients."""
        start = rng.standard_normal((ROWS, COLUMNS))
        parameter = torch.nn.Parameter(torch.tensor(start))
        optimizer = make_optimizer([parameter])
        updater, options = mv.updaters.from_torch(optimizer)
        table = mv.MatrixTableHandler(
            ROWS, COLUMNS, start, dtype="float64", updater=updater, **options
        )
        for _ in range(STEPS):
            gradient = rng.standard_normal(start.shape) * 10.0 ** rng.integers(-6, 2)
            parameter.grad = torch.tensor(gradient)
            optimizer.step()
            table.add(gradient)
        expected = parameter.detach().numpy()
        self.assertGreater(np.abs(expected - start).max(), 1e-6)
        np.testing.assert_allclose(table.get(), expected, rtol=1e-9, atol=1e-12)

    def test_steps_of_random_optimizers_are_those_of_their_updaters(self):
        rng = np.random.default_rng(11)
        decoupled = "decoupled_weight_decay" in torch.optim.Adam([torch.zeros(1)]).defaults
        for number in range(60):
            name = ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta")[number % 6]
            options = random_options(rng, name, decoupled)
            with self.subTest(name, **options):
                self.check_steps(
                    rng,
                    lambda parameters, name=name, options=options: getattr(torch.optim, name)(
                        parameters, **options
                    ),
                )

    def test_defaults_and_nesterov(self):
        for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta"):
            with self.subTest(name):
                self.check_steps(np.random.default_rng(3), getattr(torch.optim, name))
        self.check_steps(
            np.random.default_rng(4),
            lambda parameters: torch.optim.SGD(
                parameters, torch.tensor(0.25), momentum=0.75, nesterov=True
            ),
        )

    def test_tensors_without_dimensions_are_numbers(self):
        options = {"learning_rate": torch.tensor(0.5, dtype=torch.bfloat16), "momentum": 0.0}
        table = mv.ArrayTableHandler(torch.tensor(2), updater="momentum", **options)
        table.set_option(learning_rate=torch.nn.Parameter(torch.tensor(2.0)))
        self.assertEqual(table.add_get([1, 2]).tolist(), [-2, -4])


class TestAgainstFbgemm(unittest.TestCase):
    def test_rowwise_adam_adds_epsilon_after_the_bias_correction(self):
        # The formula of FBGEMM's partial row-wise Adam without weight decay.
        rng = np.random.default_rng(2)
        for size, epsilon in ((1.0, 1e-2), (1e-3, 1e-4), (1e-5, 1e-4)):
            options = {"learning_rate": 0.25, "beta_1": 0.8, "beta_2": 0.99, "epsilon": epsilon}
            weights = rng.standard_normal((12, 10))
            with mv.session():
                table = mv.MatrixTableHandler(
                    12, 10, weights, dtype="float64", updater="rowwise_adam", **options
                )
                mean, square = np.zeros_like(weights), np.zeros((12, 1))
                for t in range(1, 30):
                    gradient = rng.standard_normal((12, 10)) * size
                    table.add(gradient)
                    mean = 0.8 * mean + (1 - 0.8) * gradient
                    square = 0.99 * square + (1 - 0.99) * (gradient**2).mean(1, keepdims=True)
                    root = np.sqrt(square / (1 - 0.99**t))
                    weights = weights - 0.25 * mean / (1 - 0.8**t) / (root + epsilon)
                np.testing.assert_allclose(table.get(), weights, rtol=1e-10, atol=1e-12)
