"""The PyTorch adapter on one rank: which modules it takes, and that they behave as before."""

import copy
import importlib.util
import io
import pickle
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
import pytest

import multiverso as mv

pytestmark = pytest.mark.frameworks

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    from multiverso.torch_ext import DistributedOptimizer, TorchParamManager, _tensors


def flat(module):
    return torch.cat([p.detach().double().reshape(-1) for p in module.parameters()]).numpy()


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class InSession(unittest.TestCase):
    def setUp(self):
        mv.init()
        self.addCleanup(mv.shutdown)
        torch.manual_seed(0)


class TestModules(InSession):
    def check(self, module):
        """Somebody adds 2 and this worker 1: the parameters and the table are the sum of it."""
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

    def test_each_precision(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                module = torch.nn.Linear(3, 4).to(dtype)
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter.fill_(0.5)
                kinds = [table.dtype.name for table in self.check(module).tables]
                self.assertEqual(kinds, ["float64" if dtype == torch.float64 else "float32"])

    def test_mixed_precisions(self):
        self.check(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double()))

    def test_a_thousand_parameters(self):
        self.check(torch.nn.ParameterList(torch.ones(i % 7 + 1) for i in range(1000)))

    def test_tied_frozen_and_strided_ones(self):
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        module[1].weight = module[0].weight
        module[0].bias.requires_grad_(False)
        module.register_parameter("strided", torch.nn.Parameter(torch.zeros(6, 4).T[::2]))
        self.check(module)

    def test_parameters_that_move_are_found(self):
        module = torch.nn.Linear(3, 2)
        manager = TorchParamManager(module)
        module.weight.data = torch.full((2, 3), 5.0)
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get()[:6], 5)

    def test_another_shape_is_an_error(self):
        module = torch.nn.Linear(3, 2)
        manager = TorchParamManager(module)
        module.weight.data = torch.zeros(3, 3)
        with self.assertRaisesRegex(ValueError, r"parameter weight: expected shape \(2, 3\)"):
            manager.sync_all_param()

    def test_other_tensors_at_the_same_place(self):
        for change, text in (
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

    def test_another_order_in_the_same_memory(self):
        module = torch.nn.Linear(3, 3)
        manager = TorchParamManager(module)
        manager.sync_all_param()
        module.weight.data = torch.arange(9.0).reshape(3, 3).T
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get()[:9].reshape(3, 3), module.weight.data)
        manager.tables[0].add(np.arange(12.0))
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get(), flat(module))

    def test_small_gains_of_half_precision_are_not_lost(self):
        module = torch.nn.ParameterList([torch.full((3,), 256.0, dtype=torch.bfloat16)])
        manager = TorchParamManager(module)
        for _ in range(4):
            manager.tables[0].add([0.5] * 3)  # a quarter of what it can tell apart
            manager.sync_all_param()
        np.testing.assert_array_equal(flat(module), 258)

    def test_saving_copying_and_pickling_work_as_before(self):
        module = torch.nn.Linear(2, 2)
        manager = TorchParamManager(module)
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        twin = pickle.loads(pickle.dumps(copy.deepcopy(module)))  # our own bytes
        with torch.no_grad():
            module.weight += 1
        file.seek(0)
        module.load_state_dict(torch.load(file, weights_only=True))
        manager.sync_all_param()
        np.testing.assert_array_equal(flat(module), flat(twin))

    def test_a_sync_before_the_backward_pass_is_noticed(self):
        module = torch.nn.Linear(2, 1)
        manager = TorchParamManager(module)
        loss = (module(torch.ones(1, 2, requires_grad=True)) ** 2).sum()
        manager.sync_all_param()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_a_torch_that_takes_one_tensor_at_a_time(self):
        module = torch.nn.Linear(2, 1)
        manager = TorchParamManager(module)
        with mock.patch.object(_tensors, "_increment_all", _tensors._increment_each):
            before = [parameter._version for parameter in module.parameters()]
            manager.sync_all_param()
        after = [parameter._version for parameter in module.parameters()]
        self.assertTrue(all(b < a for b, a in zip(before, after, strict=True)), (before, after))

    def test_layers_with_their_channels_last(self):
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
        self.check(module.to(memory_format=torch.channels_last))


class TestBuffers(InSession):
    def module(self):
        return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))

    def test_they_are_as_trained_where_there_is_one_worker(self):
        for choice in ("average", "master", False):
            with self.subTest(choice):
                module = self.module()
                manager = TorchParamManager(module, sync_buffers=choice)
                module(torch.tensor([[1.0, 2.0], [5.0, 7.0]]))
                before = [buffer.clone() for buffer in module.buffers()]
                manager.sync_all_param()
                for buffer, wanted in zip(module.buffers(), before, strict=True):
                    torch.testing.assert_close(buffer, wanted)

    def test_those_left_alone_have_no_place_in_a_table(self):
        sizes = [
            sum(table.size for table in TorchParamManager(self.module(), choice).tables)
            for choice in ("average", "master", False)
        ]
        self.assertEqual(sizes, [15, 15, 10])


class TestWhatIsWrong(InSession):
    def check(self, error, message, make):
        with self.assertRaisesRegex(error, message):
            make()
        mv.barrier()

    def test_no_parameters(self):
        self.check(
            ValueError, "received a ReLU without any", lambda: TorchParamManager(torch.nn.ReLU())
        )

    def test_no_module(self):
        self.check(TypeError, "received list", lambda: TorchParamManager([torch.zeros(2)]))

    def test_lazy_ones(self):
        lazy = torch.nn.LazyLinear(3)
        self.check(ValueError, "parameter weight: .*lazy", lambda: TorchParamManager(lazy))

    def test_complex_ones(self):
        module = torch.nn.Linear(2, 2, dtype=torch.complex64)
        self.check(TypeError, "received torch.complex64", lambda: TorchParamManager(module))

    def test_memory_that_two_share(self):
        whole = torch.zeros(4)
        module = torch.nn.ParameterList([whole[:3], whole[2:]])
        self.check(ValueError, "share", lambda: TorchParamManager(module))

    def test_another_choice_for_buffers(self):
        for choice in ("mean", True, None, 0):
            with self.subTest(choice):
                self.check(
                    ValueError,
                    "sync_buffers: expected one of",
                    lambda choice=choice: TorchParamManager(torch.nn.Linear(1, 1), choice),
                )

    def test_another_frequency_or_no_optimiser(self):
        module = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(module.parameters(), lr=1)
        for freq in (0, -1, 1.5, True, "1", None):
            with self.subTest(freq):
                self.check(
                    ValueError,
                    "freq: expected an int >= 1",
                    lambda freq=freq: DistributedOptimizer(optimizer, module, freq),
                )
        self.check(TypeError, "optimizer: expected", lambda: DistributedOptimizer(module, module))


class TestOptimizers(InSession):
    def train(self, make, freq=None, steps=7):
        """Return the parameters after some steps, and the scheduler's last learning rate."""
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

    def test_they_train_as_before(self):
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

    def test_one_sync_every_freq_steps_and_by_hand(self):
        parameters, _, optimizer = self.train(lambda p: torch.optim.SGD(p, lr=0.01), freq=3)
        table = optimizer.manager.tables[0]
        self.assertFalse(np.array_equal(table.get(), parameters))
        optimizer.sync()
        np.testing.assert_array_equal(table.get(), parameters)

    def test_closures_states_and_groups_are_the_optimisers(self):
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


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class TestImport(unittest.TestCase):
    def test_it_imports_no_other_framework(self):
        code = (
            "import sys, multiverso.torch_ext; print([name for name in ('pytensor', 'theano',"
            " 'aesara', 'jax', 'keras', 'tensorflow') if name in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
        )
        self.assertEqual(done.stdout, "[]\n")


if __name__ == "__main__":
    unittest.main()
