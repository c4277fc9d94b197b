"""The learning rates of rows follow the schedulers of an optimizer of PyTorch."""

import shutil
import tempfile
import warnings

import numpy as np
import pytest
from torch_devices import HAS_TORCH, TorchTestCase

import multiverso as mv

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch

    from multiverso.torch_ext import DistributedOptimizer, Embedding

ROWS, DIM = 12, 5


class TestSchedules(TorchTestCase):
    def test_rows_follow_the_scheduler_of_the_optimizer(self):
        for is_distributed in (False, True):
            reference = torch.nn.Embedding(ROWS, DIM)
            start = reference.weight.detach().numpy()
            table = mv.MatrixTableHandler(ROWS, DIM, start, updater="sgd", learning_rate=1.0)
            table.set_option(learning_rate=0.5)
            layer = Embedding(table)
            module = torch.nn.Sequential(layer, torch.nn.Linear(DIM, 1))
            other = Embedding(table)  # Another layer of the table changes nothing.
            optimizer = torch.optim.SGD([*module.parameters(), *other.parameters()], lr=0.02)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            plain = torch.optim.SGD(reference.parameters(), lr=0.5)
            plain_scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
            both = torch.nn.ModuleList([module, other])
            wrapped = DistributedOptimizer(optimizer, both) if is_distributed else optimizer
            for ids in torch.randint(0, ROWS, (4, 6)):
                for step, schedule, rows in (
                    (wrapped, scheduler, layer),
                    (plain, plain_scheduler, reference),
                ):
                    step.zero_grad()
                    rows(ids).square().sum().backward()
                    step.step()
                    if rows is layer and not is_distributed:
                        layer.step()
                        other.step()
                    schedule.step()
            expected = reference.weight.detach().numpy()
            np.testing.assert_allclose(table.get(), expected, rtol=1e-4, atol=1e-5)
            self.assertAlmostEqual(table.options["learning_rate"], 0.5 / 8)
            table.set_option(learning_rate=0.25)  # The program takes over.
            for _ in range(2):
                layer(torch.tensor([1])).sum().backward()
                wrapped.step()
                layer.step()
                scheduler.step()
            self.assertEqual(table.options["learning_rate"], 0.25)

    def rates(self, make_scheduler, metric=None):
        """Return the rates of the optimizer and of the table in each of four steps."""
        table = mv.MatrixTable(ROWS, DIM, updater="sgd", learning_rate=0.1)
        layer = Embedding(table)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.2)
        scheduler = make_scheduler(optimizer)
        found = []
        for _ in range(4):
            layer(torch.tensor([1])).sum().backward()
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            layer.step()
            mv.barrier()
            found.append(table.options["learning_rate"])
            scheduler.step(*(() if metric is None else (metric,)))
        return found[::2], found[1::2]

    def test_rows_follow_schedulers_and_not_rates_set_by_hand(self):
        schedulers = torch.optim.lr_scheduler
        warm_up = {"total_iters": 3, "start_factor": 0.25}
        by_hand = [
            self.ByHand([0.2 * (first + step) / 2 for step in range(3)] + [0.1]) for first in (0, 1)
        ]
        # The scheduler, and the rates of the table by those of the optimizer.
        for make, of_table in (
            (lambda o: schedulers.LinearLR(o, **warm_up), lambda rates: rates / 2),
            (lambda o: schedulers.LambdaLR(o, lambda step: min(1, step / 2)), lambda r: r / 2),
            (by_hand[0], lambda _: [0.1] * 3 + [0.1 * 0.1 / max(by_hand[0].rates)]),
            (by_hand[1], lambda _: [0.1] * 3 + [0.1 * 0.1 / max(by_hand[1].rates)]),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                rates, found = self.rates(make)
            np.testing.assert_allclose(found, of_table(np.array(rates)))

    def test_rows_follow_schedulers_that_note_no_first_rate(self):
        schedulers = torch.optim.lr_scheduler
        rates, of_table = self.rates(
            lambda o: schedulers.ReduceLROnPlateau(o, factor=0.5, patience=0), metric=1.0
        )
        self.assertEqual(rates, [0.2, 0.2, 0.1, 0.05])
        np.testing.assert_allclose(of_table, np.array(rates) / 2)
        with self.assertWarnsRegex(RuntimeWarning, "create the table with the lowest rate"):
            rates, of_table = self.rates(lambda o: schedulers.CyclicLR(o, 0.01, 0.2, 2))
        np.testing.assert_allclose(of_table, 0.1 * np.array(rates) / 0.01)

    class ByHand:
        """Sets the rates of an optimizer as a program does, without a scheduler."""

        def __init__(self, rates):
            self.rates = rates

        def __call__(self, optimizer):
            self._groups = optimizer.param_groups
            self._left = iter([*self.rates, 0.1])
            self.step()
            return self

        def step(self):
            for group in self._groups:
                group["lr"] = next(self._left)

    def test_a_resumed_schedule_has_its_rate_once(self):
        for is_loaded_first in (False, True):
            folder = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, folder)
            table = mv.MatrixTable(ROWS, DIM, updater="sgd", learning_rate=1.0)
            table.set_option(learning_rate=0.25)
            table.save(folder)
            table = mv.MatrixTable(ROWS, DIM, updater="sgd", learning_rate=1.0)
            optimizer = None
            if is_loaded_first:
                table.load(folder)
            layer = Embedding(table)
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.4)
            if not is_loaded_first:
                table.load(folder)

            def resumed(optimizer):
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
                for _ in range(2):
                    optimizer.step()
                    scheduler.step()
                return scheduler

            scheduler = resumed(optimizer)
            of_table = []
            for _ in range(2):
                layer(torch.tensor([1])).sum().backward()
                optimizer.step()
                layer.step()
                mv.barrier()
                of_table.append(table.options["learning_rate"])
                scheduler.step()
            np.testing.assert_allclose(of_table, [0.25, 0.125])
