"""`DistributedOptimizer` on one rank, where every program trains as with the bare optimizer."""

import collections
import importlib.util
import unittest
import warnings

import numpy as np
import pytest
import sessions

import multiverso as mv

pytestmark = pytest.mark.frameworks

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch
    from torch.optim import lr_scheduler

    from multiverso.torch_ext import DistributedOptimizer

    OPTIMIZERS = {
        "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
        "fused SGD": {"lr": 0.05, "momentum": 0.9, "fused": True},
        "Adam": {"lr": 0.03, "amsgrad": True},
        "fused Adam": {"lr": 0.03, "fused": True},
        "AdamW": {"lr": 0.03, "foreach": True},
        "fused AdamW": {"lr": 0.03, "fused": True},
        "Adagrad": {"lr": 0.05},
        "RMSprop": {"lr": 0.01, "centered": True},
        "NAdam": {"lr": 0.01},
    }


def make_optimizer(name, params):
    return getattr(torch.optim, name.removeprefix("fused "))(params, **OPTIMIZERS[name])


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class OptimizerTestCase(sessions.SessionTestCase):
    def trained(self, name, loop, wraps, *, wraps_late=False):
        """Return the parameters after `loop(module, optimizer, wrap)`, and its result."""
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = make_optimizer(name, module.parameters())

        def wrap():
            return DistributedOptimizer(optimizer, module) if wraps else optimizer

        result = loop(module, optimizer if wraps_late else wrap(), wrap)
        return [p.detach().numpy().copy() for p in module.parameters()], result

    def check(self, loop, names=("SGD",), **options):
        """Check that a loop trains with `DistributedOptimizer` as with the bare optimizer."""
        for name in names:
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("error")
                # Each run names its tables after the module, as one program would not.
                warnings.filterwarnings("ignore", "two tables of this session have the name")
                expected, result = self.trained(name, loop, False, **options)
                actual, actual_result = self.trained(name, loop, True, **options)
                # A sync adds differences, which are rounded.
                for one, other in zip(actual, expected, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
                self.assertEqual(actual_result, result)


def batch(step):
    x = torch.arange(12.0).reshape(4, 3) / 10 + step
    return x, x.sum(1, keepdim=True)


def backward(module, step, scale=1.0):
    x, y = batch(step)
    loss = (module(x) - y).square().mean()
    (loss * scale).backward()
    return loss


class TestSameTraining(OptimizerTestCase):
    def test_gradient_scaler_with_and_without_infinities(self):
        for unscales in (False, True):
            for bad_steps in ((), (1,), (2, 3)):

                def loop(module, optimizer, wrap, unscales=unscales, bad_steps=bad_steps):
                    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
                    for step in range(5):
                        optimizer.zero_grad()
                        x, y = batch(step)
                        if step in bad_steps:
                            x[0, 0] = float("inf") if step != 2 else float("nan")
                        scaler.scale((module(x) - y).square().mean()).backward()
                        if unscales:
                            scaler.unscale_(optimizer)
                            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                        scaler.step(optimizer)
                        scaler.update()
                    return scaler.get_scale()

                with self.subTest(unscales=unscales, bad_steps=bad_steps):
                    self.check(loop, OPTIMIZERS)

    def test_assigned_state_groups_and_attributes(self):
        def loop(module, optimizer, wrap):
            for step in range(6):
                optimizer.zero_grad()
                backward(module, step)
                optimizer.step()
                if step == 1:
                    optimizer.state = collections.defaultdict(dict)
                if step == 3:
                    optimizer.param_groups = [dict(g, lr=0.001) for g in optimizer.param_groups]
            optimizer.note = "of the program"
            optimizer.param_groups[0]["params"].pop()  # a frozen bias
            backward(module, 6)
            optimizer.step()
            return optimizer.note, len(optimizer.param_groups[0]["params"])

        self.check(loop, OPTIMIZERS)

    def test_schedulers_made_before_and_after(self):
        makers = (
            lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=8),
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.5)], [3]
            ),
        )
        for make in makers:
            for wraps_late in (False, True):

                def loop(module, optimizer, wrap, make=make):
                    scheduler, rates = make(optimizer), []
                    optimizer = wrap() if not hasattr(optimizer, "manager") else optimizer
                    for step in range(6):
                        optimizer.zero_grad()
                        backward(module, step)
                        optimizer.step()
                        scheduler.step()
                        rates.append(scheduler.get_last_lr())
                    return rates

                with self.subTest(wraps_late=wraps_late):
                    self.check(loop, ("SGD", "fused SGD"), wraps_late=wraps_late)

    def test_hooks_run_once_also_after_loading_a_state(self):
        def loop(module, optimizer, wrap):
            calls = []
            optimizer.register_step_pre_hook(lambda o, *_: calls.append(("before", o is optimizer)))
            optimizer.register_step_post_hook(lambda o, *_: calls.append("after"))
            for step in range(4):
                if step == 2:
                    optimizer.load_state_dict(optimizer.state_dict())
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                backward(module, step)
                optimizer.step()
            return calls

        self.check(loop, OPTIMIZERS)

    def test_closures_and_results(self):
        def loop(module, optimizer, wrap):
            def closure():
                optimizer.zero_grad()
                return backward(module, 1)

            return [round(optimizer.step(closure=closure).item(), 4) for _ in range(3)]

        self.check(loop, OPTIMIZERS)


class TestOptimizer(OptimizerTestCase):
    def setUp(self):
        super().setUp()
        self.module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))

    def test_is_the_given_optimizer(self):
        plain = torch.optim.SGD(self.module.parameters(), lr=0.1)
        optimizer = DistributedOptimizer(plain, self.module, freq=2)
        self.assertIs(optimizer, plain)
        self.assertIs(optimizer.optimizer, plain)
        for kind in (DistributedOptimizer, torch.optim.SGD, torch.optim.Optimizer):
            self.assertIsInstance(optimizer, kind)
        self.assertEqual((type(optimizer).__name__, optimizer.freq), ("SGD", 2))
        self.assertRegex(repr(optimizer), r"^DistributedOptimizer\(freq=2, SGD \(")
        other = torch.optim.SGD(self.module.parameters(), lr=0.1)
        self.assertIs(type(other), torch.optim.SGD)

    def test_rejects_parameters_that_are_not_synchronized(self):
        other = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(other.parameters(), lr=1)
        with self.assertRaisesRegex(ValueError, r"received 2 of 2 .*\(1, 3\), \(1,\); pass a mod"):
            DistributedOptimizer(optimizer, self.module)
        both = torch.optim.Adam([*self.module.parameters(), *other.parameters()], lr=1)
        with self.assertRaisesRegex(ValueError, "received 2 of 6"):
            DistributedOptimizer(both, self.module)
        self.assertIs(type(both), torch.optim.Adam)
        DistributedOptimizer(both, torch.nn.ModuleList([self.module, other]))

    def test_rejects_groups_of_other_parameters(self):
        optimizer = torch.optim.SGD(self.module[0].parameters(), lr=1)
        optimizer = DistributedOptimizer(optimizer, self.module)
        optimizer.add_param_group({"params": self.module[1].parameters(), "lr": 2})
        with self.assertRaisesRegex(ValueError, "received 1 of 1"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
        self.assertEqual([len(group["params"]) for group in optimizer.param_groups], [2, 2])

    def test_syncs_one_module_in_each_session(self):
        plain = torch.optim.SGD(self.module.parameters(), lr=1, fused=True)
        optimizer = DistributedOptimizer(plain, self.module)
        for again in (plain, optimizer):
            with self.assertRaisesRegex(ValueError, "received a DistributedOptimizer"):
                DistributedOptimizer(again, self.module)
        mv.shutdown()
        with self.assertRaises(mv.errors.StateError):
            optimizer.step()
        mv.init(sync=True)
        optimizer = DistributedOptimizer(optimizer, self.module, freq=3)
        optimizer.step()
        self.assertEqual(optimizer.freq, 3)

    def test_rejects_an_optimizer_with_methods_of_the_same_names(self):
        optimizer = torch.optim.SGD(self.module.parameters(), lr=1)
        optimizer.sync = lambda: None
        with self.assertRaisesRegex(TypeError, "received one with .'sync'"):
            DistributedOptimizer(optimizer, self.module)
        del optimizer.sync
        optimizer.optimizer = "its own"
        self.assertEqual(DistributedOptimizer(optimizer, self.module).optimizer, "its own")


class TestSyncMode(OptimizerTestCase):
    def setUp(self):
        mv.init(sync=True)

    test_gradient_scaler = TestSameTraining.test_gradient_scaler_with_and_without_infinities

    def test_refuses_to_unscale_half_precision_as_the_scaler_does(self):
        module = torch.nn.Linear(2, 1).half()
        optimizer = torch.optim.SGD(module.parameters(), lr=1)
        optimizer = DistributedOptimizer(optimizer, module)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        scaler.scale(module.weight.sum()).backward()
        with self.assertRaisesRegex(ValueError, "received float16"):
            scaler.step(optimizer)
