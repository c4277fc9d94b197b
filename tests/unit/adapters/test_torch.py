"""The PyTorch adapter on one rank: accepted and rejected modules, and their behavior."""

import copy
import importlib.util
import io
import pickle
import unittest
from unittest import mock

import numpy as np
import pytest
import sessions

import multiverso as mv

pytestmark = pytest.mark.frameworks

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    from multiverso.torch_ext import DistributedOptimizer, TorchParamManager, _tensors


def flat(module):
    """Return all parameters of a module as one vector of float64."""
    return torch.cat([p.detach().double().reshape(-1) for p in module.parameters()]).numpy()


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class TorchTestCase(sessions.SessionTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)


class TestModules(TorchTestCase):
    def check(self, module):
        """Check that a sync increases the parameters by 2 of another worker and 1 of this one."""
        before = flat(module)
        manager = TorchParamManager(module)
        np.testing.assert_array_equal(flat(module), before)
        for table in manager.tables:
            table.add(np.full(table.size, 2, table.dtype))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 1
        manager.sync_all_param()
        np.testing.assert_allclose(flat(module), before + 3, rtol=0, atol=0.02)
        return manager

    def test_sums_half_precision_in_float32_and_keeps_the_others(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                module = torch.nn.Linear(3, 4).to(dtype)
                for parameter in module.parameters():
                    torch.nn.init.constant_(parameter, 0.5)
                dtypes = [table.dtype.name for table in self.check(module).tables]
                self.assertEqual(dtypes, ["float64" if dtype == torch.float64 else "float32"])

    def test_syncs_mixed_dtypes_many_parameters_and_channels_last_layers(self):
        convolution = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
        for module in (
            torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double()),
            torch.nn.ParameterList(torch.ones(i % 7 + 1) for i in range(1000)),
            convolution.to(memory_format=torch.channels_last),
        ):
            self.check(module)

    def test_syncs_tied_frozen_and_strided_parameters(self):
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        module[1].weight = module[0].weight
        module[0].bias.requires_grad_(False)
        module.register_parameter("strided", torch.nn.Parameter(torch.zeros(6, 4).T[::2]))
        self.check(module)

    def test_finds_parameters_that_have_moved(self):
        module = torch.nn.Linear(3, 2)
        manager = TorchParamManager(module)
        module.weight.data = torch.full((2, 3), 5.0)
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get()[:6], 5)

    def test_rejects_other_tensors_even_at_the_same_address(self):
        for change, text in (
            (lambda data: torch.zeros(2, 3), r"parameter weight: expected shape \(3, 3\)"),
            (lambda data: data[:2], r"received \(2, 3\), torch.float32"),
            (lambda data: data.view(9), r"received \(9,\), torch.float32"),
            (lambda data: data.view(torch.float16)[:, :3], r"received \(3, 3\), torch.float16"),
        ):
            with self.subTest(text):
                module = torch.nn.Linear(3, 3)
                manager = TorchParamManager(module)
                manager.sync_all_param()
                module.weight.data = change(module.weight.data)
                with self.assertRaisesRegex(ValueError, text):
                    manager.sync_all_param()

    def test_syncs_a_transposed_parameter(self):
        module = torch.nn.Linear(3, 3)
        manager = TorchParamManager(module)
        manager.sync_all_param()
        module.weight.data = torch.arange(9.0).reshape(3, 3).T
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get()[:9].reshape(3, 3), module.weight.data)
        manager.tables[0].add(np.arange(12.0))
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get(), flat(module))

    def test_accumulates_deltas_below_half_precision(self):
        module = torch.nn.ParameterList([torch.full((3,), 256.0, dtype=torch.bfloat16)])
        manager = TorchParamManager(module)
        for _ in range(4):
            manager.tables[0].add([0.5] * 3)  # a quarter of the distance between adjacent values
            manager.sync_all_param()
        np.testing.assert_array_equal(flat(module), 258)

    def test_module_can_be_saved_copied_and_pickled(self):
        module = torch.nn.Linear(2, 2)
        manager = TorchParamManager(module)
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        twin = pickle.loads(pickle.dumps(copy.deepcopy(module)))  # bytes of this test are safe
        with torch.no_grad():
            module.weight += 1
        file.seek(0)
        module.load_state_dict(torch.load(file, weights_only=True))
        manager.sync_all_param()
        np.testing.assert_array_equal(flat(module), flat(twin))

    def test_backward_pass_after_a_sync_is_an_error(self):
        module = torch.nn.Linear(2, 1)
        manager = TorchParamManager(module)
        loss = (module(torch.ones(1, 2, requires_grad=True)) ** 2).sum()
        manager.sync_all_param()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_works_if_autograd_accepts_one_tensor_at_a_time(self):
        module = torch.nn.Linear(2, 1)
        manager = TorchParamManager(module)
        with mock.patch.object(_tensors, "_increment_all", _tensors._increment_each):
            before = [parameter._version for parameter in module.parameters()]
            manager.sync_all_param()
        after = [parameter._version for parameter in module.parameters()]
        self.assertTrue(all(b < a for b, a in zip(before, after, strict=True)), (before, after))


class TestBuffers(TorchTestCase):
    def module(self):
        return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))

    def test_one_worker_keeps_its_buffers(self):
        for choice in ("average", "master", False):
            with self.subTest(choice):
                module = self.module()
                manager = TorchParamManager(module, sync_buffers=choice)
                module(torch.tensor([[1.0, 2.0], [5.0, 7.0]]))
                before = [buffer.clone() for buffer in module.buffers()]
                manager.sync_all_param()
                for buffer, wanted in zip(module.buffers(), before, strict=True):
                    torch.testing.assert_close(buffer, wanted)

    def test_buffers_that_are_not_synced_are_not_in_a_table(self):
        for choice, size in (("average", 15), ("master", 15), (False, 10)):
            tables = TorchParamManager(self.module(), choice).tables
            self.assertEqual(sum(table.size for table in tables), size)


class TestRejectedArguments(TorchTestCase):
    def test_rejects_invalid_modules_and_options(self):
        whole = torch.zeros(4)
        overlapping = torch.nn.ParameterList([whole[:3], whole[2:]])
        complex_module = torch.nn.Linear(2, 2, dtype=torch.complex64)
        linear, choices = torch.nn.Linear(1, 1), ("mean", True, None, 0)
        for error, message, module, *options in (
            (ValueError, "received a ReLU without any", torch.nn.ReLU()),
            (TypeError, "received list", [torch.zeros(2)]),
            (ValueError, "parameter weight: .*lazy", torch.nn.LazyLinear(3)),
            (TypeError, "received complex64", complex_module),
            (ValueError, "share", overlapping),
            (TypeError, "average: expected True or False", linear, {"average": 1}),
            *((ValueError, "sync_buffers: ", linear, {"sync_buffers": c}) for c in choices),
        ):
            with self.subTest(message, options=options):
                with self.assertRaisesRegex(error, message):
                    TorchParamManager(module, **dict(*options))
                mv.barrier()

    def test_rejects_invalid_frequencies_and_optimizers(self):
        module = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(module.parameters(), lr=1)
        frequencies = (0, -1, 1.5, True, "1", None)
        for error, message, inner, *freq in (
            *((ValueError, "freq: expected an int >= 1", optimizer, freq) for freq in frequencies),
            (TypeError, "optimizer: expected", module),
        ):
            with self.subTest(message, freq=freq):
                with self.assertRaisesRegex(error, message):
                    DistributedOptimizer(inner, module, *freq)
                mv.barrier()


class TestOptimizers(TorchTestCase):
    def train(self, make, freq=None, steps=7):
        """Return the parameters after some steps, the last learning rate and the optimizer."""
        torch.manual_seed(1)
        module = torch.nn.Linear(3, 1)
        optimizer = make(module.parameters())
        if freq is not None:
            optimizer = DistributedOptimizer(optimizer, module, freq)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(steps):
            optimizer.zero_grad()
            (module(torch.ones(4, 3)) ** 2).sum().backward()
            optimizer.step()
            scheduler.step()
        return flat(module), scheduler.get_last_lr(), optimizer

    def test_one_worker_trains_as_without_the_wrapper(self):
        makers = {
            "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
            "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
            "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
        }
        for name, make in makers.items():
            for freq in (1, 3):
                with self.subTest(name, freq=freq):
                    alone, together = self.train(make), self.train(make, freq)
                    np.testing.assert_allclose(together[0], alone[0], rtol=1e-5)
                    self.assertEqual(together[1], alone[1])

    def test_syncs_every_freq_steps_and_on_request(self):
        parameters, _, optimizer = self.train(lambda p: torch.optim.SGD(p, lr=0.01), freq=3)
        table = optimizer.manager.tables[0]
        self.assertFalse(np.array_equal(table.get(), parameters))
        optimizer.sync()
        np.testing.assert_array_equal(table.get(), parameters)

    def test_uses_the_closures_state_and_groups_of_the_optimizer(self):
        module = torch.nn.Linear(2, 1)
        inner = torch.optim.LBFGS(module.parameters())
        optimizer = DistributedOptimizer(inner, module)

        def closure():
            optimizer.zero_grad()
            loss = (module(torch.ones(1, 2)) ** 2).sum()
            loss.backward()
            return loss

        first, last = optimizer.step(closure), optimizer.step(closure)
        self.assertLess(last, first)
        self.assertIs(optimizer.param_groups, inner.param_groups)
        state = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(state)
        self.assertEqual(optimizer.state_dict().keys(), state.keys())
        self.assertIsInstance(optimizer, torch.optim.Optimizer)
        with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
            pickle.dumps(optimizer)
