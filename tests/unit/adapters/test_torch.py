"""The PyTorch adapter on one rank: accepted and rejected modules, and their behavior."""

import copy
import io
import pickle
from unittest import mock

import numpy as np
import pytest
from torch_devices import HAS_TORCH, TorchTestCase, flat, on_gpu

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch

    from multiverso.torch_ext import TorchParamManager, _tensors


class TestOnEachDevice(TorchTestCase):
    def check(self, module):
        """Check that a sync adds 2 of another worker and 1 of this one, where the tensors are."""
        before = flat(module)
        manager = TorchParamManager(module)
        np.testing.assert_array_equal(flat(module), before)
        places = [(p.device, p.data_ptr(), p.stride()) for p in module.parameters()]
        for turn in (1, 2):
            for table in manager.tables:
                table.add(np.full(table.size, 2, table.dtype))
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter += 1
            manager.sync_all_param()
            np.testing.assert_allclose(flat(module), before + 3 * turn, rtol=0, atol=0.02)
        self.assertEqual(
            places, [(p.device, p.data_ptr(), p.stride()) for p in module.parameters()]
        )
        return manager

    def test_sums_half_precision_in_float32_and_keeps_the_others(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                module = torch.nn.Linear(3, 4).to(self.device, dtype)
                for parameter in module.parameters():
                    torch.nn.init.constant_(parameter, 0.5)
                dtypes = [table.dtype.name for table in self.check(module).tables]
                self.assertEqual(dtypes, ["float64" if dtype == torch.float64 else "float32"])
        counts = torch.nn.Linear(3, 4).to(self.device)
        counts.count = torch.nn.Parameter(self.tensor([0, 0, 0]), requires_grad=False)
        self.check(counts)

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
        manager = self.check(module)
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

    def test_saved_states_load_from_either_device(self):
        module = torch.nn.Linear(3, 2).to(self.device)
        manager = TorchParamManager(module)
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        twin = pickle.loads(pickle.dumps(copy.deepcopy(module)))  # bytes of this test are safe
        for assign in (False, True):
            for device in sorted({"cpu", self.device}):
                with torch.no_grad():
                    module.weight += 1
                manager.sync_all_param()
                file.seek(0)
                state = torch.load(file, map_location=device, weights_only=True)
                module.load_state_dict(state, assign=assign)
                manager.sync_all_param()
                np.testing.assert_allclose(flat(module), flat(twin), atol=1e-6)
                np.testing.assert_array_equal(manager.tables[0].get(), flat(module))

    def test_backward_pass_after_a_sync_is_an_error(self):
        module = torch.nn.Linear(2, 1).to(self.device)
        manager = TorchParamManager(module)
        x = self.tensor([[1.0, 1.0]], requires_grad=True)
        loss = (module(x) ** 2).sum()
        manager.sync_all_param()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_one_worker_keeps_its_buffers(self):
        for choice in ("average", "master", False):
            with self.subTest(choice):
                module = torch.nn.BatchNorm1d(2).to(self.device)
                manager = TorchParamManager(module, sync_buffers=choice)
                module(self.tensor([[1.0, 2.0], [5.0, 7.0]]))
                before = [buffer.clone() for buffer in module.buffers()]
                manager.sync_all_param()
                for buffer, wanted in zip(module.buffers(), before, strict=True):
                    torch.testing.assert_close(buffer, wanted)


TestOnEachDeviceOnGpu = on_gpu(TestOnEachDevice)


class TestModules(TorchTestCase):
    def test_finds_parameters_that_have_moved(self):
        module = torch.nn.Linear(3, 2)
        manager = TorchParamManager(module)
        module.weight.data = torch.full((2, 3), 5.0)
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get()[:6], 5)

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
