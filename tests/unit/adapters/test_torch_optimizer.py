"""`DistributedOptimizer` on one rank, where every program trains as with the bare optimizer."""

import collections
import pickle
import warnings

import numpy as np
import pytest
from torch_devices import HAS_TORCH, TorchTestCase, flat, on_gpu

import multiverso as mv

pytestmark = pytest.mark.frameworks

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


class TestOnEachDevice(TorchTestCase):
    """Trainings with each optimizer of `OPTIMIZERS`, with and without Multiverso."""

    def train(self, make, autocast=None, clip=None, bad_steps=(), compiles=False, **options):
        """Return the parameters and the scale after some steps, with Multiverso if with options."""
        torch.manual_seed(1)
        device = self.device
        module = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
        )
        x, y = torch.randn(7, 16, 6).to(device), torch.randn(7, 16, 1).to(device)
        module.to(device)
        if compiles:
            module = torch.compile(module, backend="eager" if device == "cpu" else "inductor")
        optimizer = make(module.parameters())
        scaler = torch.amp.GradScaler(device, init_scale=2.0**14, enabled=autocast is not None)
        if options:
            optimizer = DistributedOptimizer(optimizer, module, **options)
        scheduler = lr_scheduler.StepLR(optimizer, 2)
        for step in range(7):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=autocast, enabled=autocast is not None):
                loss = torch.nn.functional.mse_loss(module(x[step]), y[step])
            if step in bad_steps:  # The scaler skips them, because of one parameter's gradient.
                loss = loss + module[3].bias.sum() * float("inf" if step != 2 else "nan")
            scaler.scale(loss).backward()
            if clip is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
        if options:
            optimizer.wait()
            optimizer.sync()
            optimizer.wait()
            expected = flat(module)
            values = np.concatenate([table.get() for table in optimizer.manager.tables])
            if options.get("fragments", 1) == 1:
                np.testing.assert_array_equal(values[: expected.size], expected)
        return flat(module), scaler.get_scale()

    def check(self, choices, names=None, **training):
        makers = {
            name: lambda p, name=name: make_optimizer(name, p) for name in names or OPTIMIZERS
        }
        if self.device == "cuda":
            makers["capturable"] = lambda p: torch.optim.Adam(p, lr=0.01, capturable=True)
        for name, make in makers.items():
            alone, scale = self.train(make, **training)
            for options in choices:
                with self.subTest(name, **options, **training):
                    together, same_scale = self.train(make, **training, **options)
                    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
                    self.assertEqual(same_scale, scale)

    def test_one_worker_trains_as_without_the_wrapper(self):
        choices = [
            {"freq": 1},
            {"freq": 3, "average": True},
            {"freq": 2, "overlap": True},
            {"freq": 4, "fragments": 2},
        ]
        self.check(choices)
        self.check(choices[:2], clip=0.1)
        self.check(choices[2:3], names=["SGD"], compiles=True)
        mv.shutdown()
        mv.init(sync=True)
        self.check(choices[:3])

    def test_scalers_skip_the_same_steps(self):
        dtype = torch.float16 if self.device == "cuda" else torch.bfloat16
        choices = [{"freq": 1}, {"freq": 2, "average": True}]
        for is_sync in (False, True):
            mv.shutdown()
            mv.init(sync=is_sync)
            for clip in (None, 0.1):
                for bad_steps in ((), (1,), (2, 3)):
                    self.check(choices, autocast=dtype, clip=clip, bad_steps=bad_steps)


TestOnEachDeviceOnGpu = on_gpu(TestOnEachDevice)


class OptimizerTestCase(TorchTestCase):
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
        other.optimizer = "its own"
        self.assertEqual(DistributedOptimizer(other, self.module).optimizer, "its own")
        with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
            pickle.dumps(optimizer)

    def test_an_optimizer_may_call_its_closure_several_times(self):
        inner = torch.optim.LBFGS(self.module.parameters())
        optimizer = DistributedOptimizer(inner, self.module)

        def closure():
            optimizer.zero_grad()
            return backward(self.module, 1)

        first, last = optimizer.step(closure), optimizer.step(closure)
        self.assertLess(last, first)

    def test_syncs_every_freq_steps_and_on_request(self):
        plain = torch.optim.SGD(self.module.parameters(), lr=0.1)
        optimizer = DistributedOptimizer(plain, self.module, freq=3)
        (table,) = optimizer.manager.tables
        self.module(torch.ones(1, 3)).sum().backward()
        for step in range(1, 5):
            optimizer.step()
            self.assertEqual(np.array_equal(table.get(), flat(self.module)), step == 3)
        optimizer.sync()
        np.testing.assert_array_equal(table.get(), flat(self.module))

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


class TestSyncMode(OptimizerTestCase):
    def setUp(self):
        mv.init(sync=True)

    def test_refuses_to_unscale_half_precision_as_the_scaler_does(self):
        module = torch.nn.Linear(2, 1).half()
        optimizer = torch.optim.SGD(module.parameters(), lr=1)
        optimizer = DistributedOptimizer(optimizer, module)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        scaler.scale(module.weight.sum()).backward()
        with self.assertRaisesRegex(ValueError, "received float16"):
            scaler.step(optimizer)
