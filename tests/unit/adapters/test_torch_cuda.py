"""What the PyTorch adapter does only with tensors on a GPU, or on several devices.

`on_gpu` repeats what it also does on the CPU, in the files of the adapter's parts.
"""

import unittest
from unittest import mock

import numpy as np
import pytest
from torch_devices import GPU, HAS_GPU, HAS_TORCH, TorchTestCase, flat

import multiverso as mv

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch

    from multiverso.torch_ext import (
        DistributedOptimizer,
        Embedding,
        EmbeddingBag,
        TorchParamManager,
    )
    from multiverso.torch_ext._tensors import TorchTensor

ROWS, DIM = 12, 5

#: Cycles in which a GPU sleeps before the work that a copy must wait for, a fifth of a second.
PAUSE = 300_000_000


class TestWithoutGpu(TorchTestCase):
    def test_programs_may_have_another_default_device(self):
        module = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
        layer = Embedding(mv.MatrixTableHandler(ROWS, DIM, updater="sgd", learning_rate=1.0))
        ids = torch.tensor([1, 2])
        with torch.device("meta"):
            manager = TorchParamManager(module)
            manager.tables[0].add(np.ones(8))
            manager.sync_all_param()
            layer(ids).sum().backward()
            layer.step()
        np.testing.assert_allclose(manager.tables[0].get(), flat(module), rtol=0.01)
        np.testing.assert_array_equal(layer.table.get([1]), [[-1] * DIM])


@unittest.skipUnless(HAS_GPU, "needs PyTorch with a GPU")
class GpuTestCase(TorchTestCase):
    device = GPU


class TestManager(GpuTestCase):
    def test_syncs_tensors_of_both_devices(self):
        module = torch.nn.ModuleList([torch.nn.Linear(2, 3), torch.nn.Linear(3, 2).to(GPU)])
        self.check_manager(module)
        self.check_manager(torch.nn.ModuleList([module[1], module[0].half()]))

    def test_follows_a_module_to_another_device(self):
        for overwrites in (False, True):
            for dtype in (torch.float32, torch.bfloat16):
                module = torch.nn.Linear(3, 2).to(dtype)
                torch.nn.init.zeros_(module.weight)
                manager = TorchParamManager(module)
                for turn, device in enumerate(("cpu", GPU, "cpu", GPU), 1):
                    torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
                    try:
                        module.to(device)
                    finally:
                        torch.__future__.set_overwrite_module_params_on_conversion(False)
                    with torch.no_grad():
                        module.weight += 1
                    manager.tables[0].add(np.ones(manager.tables[0].size))
                    manager.sync_all_param()
                    self.assertEqual(module.weight.device.type, device)
                    self.assertEqual(module.weight.unique().tolist(), [2 * turn])
                    np.testing.assert_array_equal(manager.tables[0].get()[:6], 2 * turn)

    def test_copies_to_pinned_memory(self):
        module = torch.nn.Linear(3, 2).to(GPU)
        manager = TorchParamManager(module)
        manager.sync_all_param()
        copies = [tensor._copy for tensor in manager._sync._tensors]
        self.assertEqual([torch.from_numpy(c).is_pinned() for c in copies], [True] * 2)

    def test_programs_may_make_the_gpu_the_default_device(self):
        torch.set_default_device(GPU)
        try:
            self.check_manager(torch.nn.Linear(3, 4))
            self.check_manager(torch.nn.Linear(3, 4, dtype=torch.bfloat16))
            self.check_manager(torch.nn.Linear(3, 4).to("cpu", torch.float16))
            table = mv.MatrixTableHandler(ROWS, DIM, updater="sgd", learning_rate=1.0)
            for ids in (torch.tensor([[1, 1, 3]]), torch.tensor([[1, 1, 3]], device="cpu")):
                for layer in (Embedding(table), EmbeddingBag(table, "sum")):
                    layer.prefetch(ids)
                    layer(ids).sum().backward()
                    layer.step()
        finally:
            torch.set_default_device(None)
        np.testing.assert_array_equal(table.get([1, 3]), [[-8] * DIM, [-4] * DIM])


class TestOptimizers(GpuTestCase):
    def test_graphs_see_the_synchronized_parameters(self):
        module = torch.nn.Linear(3, 1).to(GPU)
        optimizer = DistributedOptimizer(torch.optim.SGD(module.parameters(), lr=0.1), module)
        x = torch.ones(4, 3, device=GPU)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            module(x).square().mean().backward()
            optimizer.zero_grad(set_to_none=False)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = module(x).square().mean()
            loss.backward()
        for _ in range(5):
            optimizer.manager.tables[0].add(np.full(4, 0.5, np.float32))
            optimizer.zero_grad(set_to_none=False)
            optimizer.sync()
            graph.replay()
            np.testing.assert_allclose(
                loss.item(), module(x).square().mean().item(), rtol=1e-4, atol=1e-6
            )
            optimizer.step()


class TestStreams(GpuTestCase):
    def test_a_sync_reads_after_the_work_of_the_current_stream(self):
        for layout in ("contiguous", "transposed"):
            for options in ({}, {"overlap": True}, {"average": True}):
                for dtype in (torch.float32, torch.bfloat16):
                    with self.subTest(layout, dtype=dtype, **options):
                        self.check_stream(layout, dtype, options)

    def check_stream(self, layout, dtype, options):
        weight = torch.zeros(300, 200, device=GPU, dtype=dtype)
        weight = weight.T if layout == "transposed" else weight
        module = torch.nn.ParameterList([weight])
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            manager = TorchParamManager(module, **options)
            for turn in (1, 2):
                torch.cuda._sleep(PAUSE)
                module[0] += 1
                manager.sync_all_param()
                copied = module[0].clone()  # on the stream of the write
                if "overlap" not in options:
                    np.testing.assert_array_equal(manager.tables[0].get(), turn)
            manager.wait()
            manager.sync_all_param()
            manager.wait()
        np.testing.assert_array_equal(manager.tables[0].get(), 2)
        self.assertEqual(copied.unique().tolist(), [2])

    def test_a_sync_has_written_when_it_returns(self):
        def write(tensor, values, original=TorchTensor.write):
            torch.cuda._sleep(PAUSE)
            original(tensor, values)

        for dtype in (torch.float32, torch.bfloat16):
            module = torch.nn.ParameterList([torch.zeros(1000, device=GPU, dtype=dtype)])
            manager = TorchParamManager(module)
            other = torch.cuda.Stream()
            for turn in range(1, 4):
                manager.tables[0].add(np.ones(1000, np.float32))
                with mock.patch.object(TorchTensor, "write", write):
                    manager.sync_all_param()
                with torch.cuda.stream(other):  # which waits for no other stream
                    self.assertEqual(module[0].unique().tolist(), [turn])

    def test_rows_are_those_of_ids_that_the_stream_still_computes(self):
        before = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
        table = mv.MatrixTableHandler(ROWS, DIM, before.copy(), updater="sgd", learning_rate=1.0)
        layer = Embedding(table).to(GPU)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            ids = torch.zeros(64, dtype=torch.int64, device=GPU)
            torch.cuda._sleep(PAUSE)
            ids += 3
            layer.prefetch(ids)
            outputs = []
            for row in (3, 5, 7, 9):
                ids = torch.full((64,), row, device=GPU)
                outputs.append(layer(ids))
                torch.cuda._sleep(PAUSE // 4)
            loss = sum(output.sum() for output in outputs)
            torch.cuda._sleep(PAUSE)
            loss.backward()
        self.assertTrue(layer.step())
        for row, output in zip((3, 5, 7, 9), outputs, strict=True):
            np.testing.assert_array_equal(output.detach().cpu(), before[[row] * 64])
        before[[3, 5, 7, 9]] -= 64
        np.testing.assert_allclose(table.get(), before, rtol=1e-5, atol=1e-5)

    def test_many_batches_reuse_pinned_memory_without_mixing_rows(self):
        table = mv.MatrixTableHandler(500, 64, updater="sgd", learning_rate=1.0)
        table.add(-np.arange(500, dtype=np.float32)[:, None].repeat(64, 1))
        layer = Embedding(table).to(GPU)
        streams = [torch.cuda.Stream() for _ in range(3)]
        generator = np.random.default_rng(0)
        kept = []
        for step in range(150):
            given = generator.integers(0, 500, 400)
            ids = torch.from_numpy(given)
            with torch.cuda.stream(streams[step % 3]), torch.no_grad():
                layer.prefetch(ids.to(GPU))
                torch.cuda._sleep(PAUSE // 300)
                kept.append((given, layer(ids.to(GPU) if step % 2 else ids).to(GPU)))
        torch.cuda.synchronize()
        for given, rows in kept:
            np.testing.assert_array_equal(rows.cpu()[:, 0], given)
            np.testing.assert_array_equal(rows.cpu()[:, -1], given)


class _OnlyDlpack:
    """An array of which a library knows nothing but DLPack."""

    def __init__(self, tensor):
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


class _OnlyCuda:
    """An array of which a library knows nothing but its address on the GPU."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = getattr(tensor, "__cuda_array_interface__", {})


class TestMistakes(GpuTestCase):
    def test_tables_refuse_tensors_on_a_gpu(self):
        table = mv.ArrayTableHandler(4)
        rows = mv.MatrixTableHandler(ROWS, DIM)
        keys = mv.HashTableHandler(DIM, 100)
        one = torch.ones(4, device=GPU)
        matrix, ids = torch.ones(2, DIM, device=GPU), torch.tensor([1, 2], device=GPU)
        arrays = (one, one.requires_grad_(), _OnlyCuda(one.detach()), list(one))
        for array in arrays:
            for call in (
                lambda array=array: table.add(array),
                lambda array=array: table.add_async(array),
                lambda array=array: mv.ArrayTableHandler(4, array),
            ):
                with self.subTest(type(array)), self.assertRaises((TypeError, ValueError)):
                    call()
        for call in (
            lambda: table.get(out=one.detach()),
            lambda: table.get(out=_OnlyCuda(one.detach())),
            lambda: table.get_async(one.detach()),
            lambda: rows.add(matrix, [1, 2]),
            lambda: rows.add(np.ones((2, DIM)), ids),
            lambda: rows.get(ids),
            lambda: rows.get([1, 2], out=matrix),
            lambda: keys.get(ids),
            lambda: keys.add(matrix, [1, 2]),
            lambda: mv.aggregate(one.detach()),
            lambda: mv.sync.ParamSync([one.detach()]),
        ):
            with self.assertRaisesRegex(TypeError, "(?i)cuda|expected"):
                call()
        np.testing.assert_array_equal(table.get(), 0)

    def test_arrays_with_dlpack_alone_are_copied_or_refused(self):
        table = mv.ArrayTableHandler(4)
        array = _OnlyDlpack(torch.arange(4.0, device=GPU))
        for call in (lambda: table.add(array), lambda: table.get(out=array)):
            before = table.get()
            try:
                call()
            except TypeError:
                np.testing.assert_array_equal(table.get(), before)
            else:
                np.testing.assert_array_equal(table.get(), before + np.arange(4))
