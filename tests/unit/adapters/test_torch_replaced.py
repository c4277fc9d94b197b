"""Modules that replace their tensors, or whose tensors share memory, and tensors of other kinds."""

import numpy as np
import pytest
from torch_devices import HAS_TORCH, TorchTestCase

import multiverso as mv

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch
    from torch import nn

    from multiverso.torch_ext import TorchParamManager


class TestReplacedTensors(TorchTestCase):
    def check_follows(self, module, *names, **options):
        """Check that a sync adds the values of tensors to the tables, and changes the tensors."""
        self.manager.sync_all_param()
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name in names:
            before = tensors[name].detach().clone()
            for table in self.manager.tables:
                if table.value_dtype.kind == "f":
                    table.add(np.full(table.size, 0.5, table.dtype))
            with torch.no_grad():
                tensors[name] += 1
            self.manager.sync_all_param()
            torch.testing.assert_close(tensors[name].detach(), before + 1.5)

    def test_follows_new_tensors_of_the_same_shape(self):
        def assign(module):
            state = {k: v + 1 for k, v in module.state_dict().items()}
            module.load_state_dict(state, assign=True)

        def forward(module):
            module[1].running_mean = 0.5 * module[1].running_mean + 1
            module[0].weight = nn.Parameter(module[0].weight.detach() * 2)

        def convert(module):
            module._apply(lambda tensor: tensor.clone())

        def replace_layer(module):
            module[0] = nn.Linear(2, 3).to(module[0].weight.dtype)

        def swap(module):
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            try:
                module._apply(lambda tensor: tensor.clone())
            finally:
                torch.__future__.set_overwrite_module_params_on_conversion(False)

        for change in (assign, forward, convert, replace_layer, swap):
            for dtype in (torch.float32, torch.bfloat16):
                for options in ({}, {"overlap": True}, {"fragments": 2}):
                    with self.subTest(change.__name__, dtype=dtype, options=options):
                        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(dtype)
                        module[0].weight.data.fill_(1)
                        manager = self.manager = TorchParamManager(module, **options)
                        manager.sync_all_param()
                        change(module)
                        if not options.get("overlap"):
                            self.check_follows(module, "0.weight", "1.running_mean", "1.bias")
                            continue
                        wanted = [
                            tensor.detach().clone() for tensor in module.state_dict().values()
                        ]
                        manager.sync_all_param()
                        manager.wait()
                        for tensor, value in zip(module.state_dict().values(), wanted, strict=True):
                            torch.testing.assert_close(tensor.detach(), value)
                        for table in manager.tables[:1]:
                            self.assertEqual(table.get()[0], module[0].weight[0, 0])

    def test_other_buffers_may_change(self):
        module = nn.Linear(2, 2)
        module.register_buffer("mask", torch.ones(2, dtype=torch.bool))
        manager = TorchParamManager(module)
        module.mask = torch.zeros(5, dtype=torch.bool)
        module.register_buffer("more", torch.zeros(3, dtype=torch.bool))
        manager.sync_all_param()
        module = nn.Linear(2, 2)
        manager = TorchParamManager(module, sync_buffers=False)
        module.register_buffer("more", torch.zeros(3))
        manager.sync_all_param()


class TestSeveralManagers(TorchTestCase):
    def test_the_last_manager_of_a_parameter_syncs_it(self):
        part, other = nn.Linear(2, 2), nn.Linear(2, 2)
        whole = nn.Sequential(part, nn.Linear(2, 1))
        for options in ({}, {"overlap": True}):
            first, second = TorchParamManager(whole, **options), TorchParamManager(other, **options)
            first.sync_all_param()
            last = TorchParamManager(part)
            with torch.no_grad():
                part.weight += 1
            for call in (first.sync_all_param, first.step, first.wait)[: 2 + len(options)]:
                with self.assertRaisesRegex(mv.errors.StateError, "'Linear', which was made later"):
                    call()
            for manager in (second, last):
                manager.sync_all_param()
            self.assertEqual(last.tables[0].get()[0], part.weight[0, 0])


class TestSharedMemory(TorchTestCase):
    def test_tensors_with_the_same_memory_are_synchronized_once(self):
        for dtype in (torch.float32, torch.bfloat16):
            module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
            module.to(dtype)
            module[1].weight.data = module[0].weight.data
            module.register_buffer("alias", module[0].weight.detach())
            with torch.no_grad():
                module[0].weight.fill_(1)
            manager = TorchParamManager(module)
            self.assertEqual([table.size for table in manager.tables], [4])
            manager.tables[0].add([2] * 4)
            with torch.no_grad():
                module[0].weight += 1
            manager.sync_all_param()
            for tensor in (module[0].weight, module[1].weight, module.alias):
                self.assertEqual(tensor.tolist(), [[4, 4], [4, 4]])
            module.alias = module.alias.clone()
            with self.assertRaisesRegex(ValueError, "buffer alias is new"):
                manager.sync_all_param()


class TestOtherTensors(TorchTestCase):
    def test_leaves_out_buffers_of_other_dtypes_and_all_without_sync(self):
        module = nn.Linear(1, 1)
        tensors = (torch.ones(2) * 1j, torch.ones(2, dtype=torch.bool), torch.ones(2).expand(3, 2))
        for index, tensor in enumerate(tensors):
            module.register_buffer(f"buffer{index}", tensor)
        self.assertEqual(TorchParamManager(module, sync_buffers=False).tables[0].size, 2)
        module.buffer2 = module.buffer2.contiguous()
        self.assertEqual(TorchParamManager(module).tables[0].size, 8)
