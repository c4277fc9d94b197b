"""Modules that replace their tensors, or whose tensors share memory, and tensors of other kinds."""

import warnings

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

    def test_names_tensors_that_are_new_or_missing_or_of_another_shape(self):
        def tie(module):
            module[2].weight = module[0].weight

        def parametrize(module):
            nn.utils.parametrizations.weight_norm(module[0])

        def change_data(change):
            return lambda m: setattr(m[0].weight, "data", change(m[0].weight.data))

        changes = {
            # Some of these are at the same address.
            r"parameter 0.weight: expected shape \(2, 2\), .*received \(1, 2\)": change_data(
                lambda data: data[:1]
            ),
            r"received \(4,\), torch.float32": change_data(lambda data: data.view(4)),
            r"received \(2, 2\), torch.float16": change_data(
                lambda data: data.view(torch.float16)[:, :2]
            ),
            r"parameter 3.weight is new, parameter 3.bias is new": lambda m: m.append(
                nn.Linear(1, 1)
            ),
            r"parameter 0.bias is missing": lambda m: setattr(m[0], "bias", None),
            r"parameter 2.weight is missing": tie,
            r"buffer 0.mean is new": lambda m: m[0].register_buffer("mean", torch.zeros(1)),
            r"parameter 0.parametrizations.weight.original0 is new": parametrize,
            r"buffer 1.running_mean is missing": lambda m: setattr(m[1], "running_mean", None),
            r"parameter 0.weight: expected shape \(2, 2\)": lambda m: setattr(
                m[0], "weight", nn.Parameter(torch.zeros(3, 2))
            ),
            r"buffer 1.running_var: expected shape": lambda m: setattr(
                m[1], "running_var", torch.ones(2).double()
            ),
        }
        for text, change in changes.items():
            with self.subTest(text):
                module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
                manager = TorchParamManager(module)
                manager.sync_all_param()
                change(module)
                before = [tensor.clone() for tensor in module.state_dict().values()]
                for _ in range(2):
                    with self.assertRaisesRegex(ValueError, text):
                        manager.sync_all_param()
                for tensor, value in zip(module.state_dict().values(), before, strict=True):
                    torch.testing.assert_close(tensor, value)

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

    def test_names_tensors_that_share_a_part(self):
        whole = torch.zeros(4, 4)
        for dtype in (torch.float32, torch.bfloat16):
            whole = torch.zeros(4, 4, dtype=dtype)
            for first, second in ((whole[:3], whole[2:]), (whole, whole[1]), (whole.T, whole)):
                module = nn.ParameterList([first])
                module.register_buffer("view", second)
                with self.assertRaisesRegex(ValueError, "parameter 0 and buffer view share"):
                    TorchParamManager(module)
                mv.barrier()
            # Columns of one matrix do not share elements.
            module = nn.ParameterList([whole[:, ::2], whole[:, 1::2]])
            TorchParamManager(module).sync_all_param()


class TestOtherTensors(TorchTestCase):
    def test_refuses_them_by_name(self):
        def with_buffer(tensor):
            module = nn.Linear(1, 1)
            module.register_buffer("extra", tensor)
            return module

        def with_parameter(tensor):
            return nn.ParameterDict({"extra": nn.Parameter(tensor, requires_grad=False)})

        with torch.inference_mode():
            inference = torch.ones(2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about both.
            quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
            compressed = torch.eye(3).to_sparse_csr()
        sparse = torch.eye(3).to_sparse()
        for error, text, make, tensor in (
            (TypeError, "parameter extra: .*layout torch.sparse_coo", with_parameter, sparse),
            (TypeError, "buffer extra .*sync_buffers=False.*sparse_coo", with_buffer, sparse),
            (TypeError, "buffer extra .*sparse_csr", with_buffer, compressed),
            (ValueError, "parameter extra: .*strides", with_parameter, torch.ones(1).expand(3)),
            (ValueError, "buffer extra .*strides", with_buffer, torch.ones(2, 1).expand(2, 3)),
            (ValueError, "parameter extra: .*meta", with_parameter, torch.ones(2, device="meta")),
            (ValueError, "buffer extra .*meta", with_buffer, torch.ones(2, device="meta")),
            (ValueError, "buffer extra .*inference_mode", with_buffer, inference),
            (ValueError, "buffer extra .*lazy", with_buffer, nn.UninitializedBuffer()),
            (TypeError, "parameter extra: .*complex64", with_parameter, torch.ones(2) * 1j),
            (TypeError, "parameter extra: .*qint8", with_parameter, quantized),
        ):
            with self.subTest(text):
                with self.assertRaisesRegex(error, text):
                    TorchParamManager(make(tensor))
                mv.barrier()

    def test_leaves_out_buffers_of_other_dtypes_and_all_without_sync(self):
        module = nn.Linear(1, 1)
        tensors = (torch.ones(2) * 1j, torch.ones(2, dtype=torch.bool), torch.ones(2).expand(3, 2))
        for index, tensor in enumerate(tensors):
            module.register_buffer(f"buffer{index}", tensor)
        self.assertEqual(TorchParamManager(module, sync_buffers=False).tables[0].size, 2)
        module.buffer2 = module.buffer2.contiguous()
        self.assertEqual(TorchParamManager(module).tables[0].size, 8)
