"""The PyTorch adapter on one rank: accepted and rejected modules, and their behavior."""

from unittest import mock

import numpy as np
import pytest
from torch_devices import HAS_TORCH, TorchTestCase, flat, on_gpu

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch

    from multiverso.torch_ext import TorchParamManager, _tensors


class TestOnEachDevice(TorchTestCase):
    def test_syncs_every_layout_and_tied_and_frozen_parameters(self):
        module = torch.nn.Conv2d(3, 4, 2).to(self.device).to(memory_format=torch.channels_last)
        for name, tensor in {
            "turned": torch.zeros(3, 4).T,
            "strided": torch.zeros(6, 4).T[::2],
            "scalar": torch.zeros(()),
            "empty": torch.zeros(0, 3),
            "empty, too": torch.zeros(0, 3),
            "ordered": torch.arange(6.0).reshape(2, 3).T,
            "halves": torch.arange(6, dtype=torch.float16).reshape(2, 3).T,
            "doubles": torch.ones(3, dtype=torch.float64),
        }.items():
            on_device = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device
            ).copy_(tensor)
            module.register_parameter(name, torch.nn.Parameter(on_device))
        module.tied = module.bias
        module.bias.requires_grad_(False)
        manager = self.check_manager(module)
        values = np.concatenate([table.get() for table in manager.tables])
        np.testing.assert_array_equal(np.sort(values), np.sort(flat(module)))

    def test_tensors_that_get_the_same_memory_are_refused(self):
        module = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(2)]).to(self.device)
        manager = TorchParamManager(module)
        manager.sync_all_param()
        module[1].weight.data = module[0].weight.data
        before = manager.tables[0].get()
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "separate memory, but parameter 0.weight and"):
                manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get(), before)

    def test_backward_pass_after_a_sync_is_an_error(self):
        module = torch.nn.Linear(2, 1).to(self.device)
        manager = TorchParamManager(module)
        x = self.tensor([[1.0, 1.0]], requires_grad=True)
        loss = (module(x) ** 2).sum()
        manager.sync_all_param()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()


TestOnEachDeviceOnGpu = on_gpu(TestOnEachDevice)


class TestModules(TorchTestCase):
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

    def test_works_if_autograd_accepts_one_tensor_at_a_time(self):
        module = torch.nn.Linear(2, 1)
        manager = TorchParamManager(module)
        with mock.patch.object(_tensors, "_increment_all", _tensors._increment_each):
            before = [parameter._version for parameter in module.parameters()]
            manager.sync_all_param()
        after = [parameter._version for parameter in module.parameters()]
        self.assertTrue(all(b < a for b, a in zip(before, after, strict=True)), (before, after))
