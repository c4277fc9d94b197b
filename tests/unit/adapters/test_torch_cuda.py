"""The PyTorch adapter with tensors on a GPU, against PyTorch alone and the same on the CPU."""

import copy
import importlib.util
import io
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

    from multiverso.torch_ext import (
        DistributedOptimizer,
        Embedding,
        EmbeddingBag,
        EmbeddingBagCollection,
        TorchParamManager,
        prefetch,
    )
    from multiverso.torch_ext._tensors import TorchTensor

GPU = "cuda"
HAS_GPU = HAS_TORCH and torch.cuda.is_available()

ROWS, DIM = 12, 5

#: Cycles in which a GPU sleeps before the work that a copy must wait for, a fifth of a second.
PAUSE = 300_000_000


def flat(module):
    """Return all parameters of a module as one vector of float64."""
    parameters = [p.detach().cpu().double().reshape(-1) for p in module.parameters()]
    return torch.cat(parameters).numpy()


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class TestWithoutGpu(sessions.SessionTestCase):
    """What tensors on a GPU have in common with others."""

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

    def test_tensors_without_elements_have_no_memory_to_share(self):
        module = torch.nn.Linear(3, 2)
        for name in ("one", "other"):
            module.register_parameter(name, torch.nn.Parameter(torch.zeros(0, 3)))
        module.register_buffer("none", torch.zeros(0))
        manager = TorchParamManager(module)
        manager.tables[0].add(np.ones(manager.tables[0].size))
        manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get()[:8], flat(module))


@unittest.skipUnless(HAS_GPU, "needs PyTorch with a GPU")
class GpuTestCase(sessions.SessionTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)


class TestManager(GpuTestCase):
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

    def test_syncs_every_dtype(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                module = torch.nn.Linear(3, 4).to(GPU, dtype)
                for parameter in module.parameters():
                    torch.nn.init.constant_(parameter, 0.5)
                self.check(module)
        counts = torch.nn.Linear(3, 4).to(GPU)
        counts.count = torch.nn.Parameter(torch.zeros(3, dtype=torch.int64, device=GPU), False)
        self.check(counts)

    def test_syncs_every_layout(self):
        module = torch.nn.Conv2d(3, 4, 2).to(GPU).to(memory_format=torch.channels_last)
        for name, tensor in {
            "turned": torch.zeros(3, 4, device=GPU).T,
            "strided": torch.zeros(6, 4, device=GPU).T[::2],
            "scalar": torch.zeros((), device=GPU),
            "empty": torch.zeros(0, 3, device=GPU),
            "ordered": torch.arange(6.0, device=GPU).reshape(2, 3).T,
            "halves": torch.arange(6, device=GPU, dtype=torch.float16).reshape(2, 3).T,
        }.items():
            module.register_parameter(name, torch.nn.Parameter(tensor))
        module.tied = module.bias
        manager = self.check(module)
        values = np.concatenate([table.get() for table in manager.tables])
        np.testing.assert_array_equal(np.sort(values), np.sort(flat(module)))

    def test_syncs_tensors_of_both_devices(self):
        module = torch.nn.ModuleList([torch.nn.Linear(2, 3), torch.nn.Linear(3, 2).to(GPU)])
        self.check(module)
        self.check(torch.nn.ModuleList([module[1], module[0].half()]))

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

    def test_buffers_are_those_of_the_cpu(self):
        results = []
        for device in ("cpu", GPU):
            for choice in ("average", "master", False):
                module = torch.nn.BatchNorm1d(2).to(device)
                manager = TorchParamManager(module, choice)
                module(torch.tensor([[1.0, 2.0], [5.0, 7.0]], device=device))
                manager.sync_all_param()
                results.append([buffer.tolist() for buffer in module.buffers()])
        for on_cpu, on_gpu in zip(results[:3], results[3:], strict=True):
            for expected, values in zip(on_cpu, on_gpu, strict=True):
                np.testing.assert_allclose(values, expected, rtol=1e-6)

    @unittest.skipUnless(GPU == "cuda", "is about memory for a GPU")
    def test_copies_to_pinned_memory(self):
        module = torch.nn.Linear(3, 2).to(GPU)
        manager = TorchParamManager(module)
        manager.sync_all_param()
        copies = [tensor._copy for tensor in manager._sync._tensors]
        self.assertEqual([torch.from_numpy(c).is_pinned() for c in copies], [True] * 2)

    def test_tensors_that_get_the_same_memory_are_refused(self):
        module = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(2)]).to(GPU)
        manager = TorchParamManager(module)
        manager.sync_all_param()
        module[1].weight.data = module[0].weight.data
        before = manager.tables[0].get()
        with self.assertRaisesRegex(ValueError, "separate memory, but parameter 0.weight and"):
            manager.sync_all_param()
        np.testing.assert_array_equal(manager.tables[0].get(), before)

    def test_backward_pass_after_a_sync_is_an_error(self):
        module = torch.nn.Linear(2, 1).to(GPU)
        manager = TorchParamManager(module)
        loss = (module(torch.ones(1, 2, device=GPU, requires_grad=True)) ** 2).sum()
        manager.sync_all_param()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_programs_may_make_the_gpu_the_default_device(self):
        torch.set_default_device(GPU)
        try:
            self.check(torch.nn.Linear(3, 4))
            self.check(torch.nn.Linear(3, 4, dtype=torch.bfloat16))
            self.check(torch.nn.Linear(3, 4).to("cpu", torch.float16))
            table = mv.MatrixTableHandler(ROWS, DIM, updater="sgd", learning_rate=1.0)
            for ids in (torch.tensor([[1, 1, 3]]), torch.tensor([[1, 1, 3]], device="cpu")):
                for layer in (Embedding(table), EmbeddingBag(table, "sum")):
                    layer.prefetch(ids)
                    layer(ids).sum().backward()
                    layer.step()
        finally:
            torch.set_default_device(None)
        np.testing.assert_array_equal(table.get([1, 3]), [[-8] * DIM, [-4] * DIM])

    def test_saved_states_load_on_either_device(self):
        module = torch.nn.Linear(3, 2).to(GPU)
        manager = TorchParamManager(module)
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        expected = flat(module)
        for assign in (False, True):
            for device in ("cpu", GPU):
                with torch.no_grad():
                    module.weight += 1
                manager.sync_all_param()
                file.seek(0)
                state = torch.load(file, map_location=device, weights_only=True)
                module.load_state_dict(state, assign=assign)
                manager.sync_all_param()
                np.testing.assert_allclose(flat(module), expected, atol=1e-6)
                np.testing.assert_array_equal(manager.tables[0].get(), flat(module))
        self.assertEqual(flat(copy.deepcopy(module)).shape, expected.shape)


class TestOptimizers(GpuTestCase):
    def train(self, make, device=None, autocast=None, clip=None, **options):
        """Return the parameters after some steps, with Multiverso if there are options."""
        torch.manual_seed(1)
        device = device or GPU
        module = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
        )
        x, y = torch.randn(7, 16, 6).to(device), torch.randn(7, 16, 1).to(device)
        module.to(device)
        optimizer = make(module.parameters())
        scaler = torch.amp.GradScaler(device, init_scale=2.0**14, enabled=autocast is not None)
        if options:
            optimizer = DistributedOptimizer(optimizer, module, **options)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for step in range(7):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=autocast, enabled=autocast is not None):
                loss = torch.nn.functional.mse_loss(module(x[step]), y[step])
            if step == 3 and autocast is not None:
                loss = loss * float("inf")  # The scaler skips this step.
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
            size = expected.size
            values = np.concatenate([table.get() for table in optimizer.manager.tables])
            if options.get("fragments", 1) == 1:
                np.testing.assert_array_equal(values[:size], expected)
        return flat(module)

    makers = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
        "fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
        "capturable": lambda p: torch.optim.Adam(p, lr=0.01, capturable=GPU == "cuda"),
    }

    def check(self, choices, **training):
        for name, make in self.makers.items():
            alone = self.train(make, **training)
            for options in choices:
                with self.subTest(name, **options, **training):
                    together = self.train(make, **training, **options)
                    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)

    def test_one_worker_trains_as_without_the_wrapper(self):
        choices = [
            {"freq": 1},
            {"freq": 3, "average": True},
            {"freq": 2, "overlap": True},
            {"freq": 4, "fragments": 2},
        ]
        self.check(choices)
        self.check(choices[:2], clip=0.1)

    def test_one_worker_trains_as_without_the_wrapper_in_rounds(self):
        mv.shutdown()
        mv.init(sync=True)
        self.check([{"freq": 1}, {"freq": 3, "average": True}, {"freq": 1, "overlap": True}])

    def test_scalers_skip_the_same_steps(self):
        dtype = torch.float16 if GPU == "cuda" else torch.bfloat16
        for is_sync in (False, True):
            mv.shutdown()
            mv.init(sync=is_sync)
            for clip in (None, 0.1):
                self.check([{"freq": 1}, {"freq": 2, "average": True}], autocast=dtype, clip=clip)

    def test_trains_as_on_the_cpu(self):
        for name in ("SGD", "Adam"):
            for options in ({"freq": 2}, {"freq": 1, "average": True}):
                on_cpu = self.train(self.makers[name], "cpu", **options)
                on_gpu = self.train(self.makers[name], **options)
                np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3, atol=1e-4)

    def test_half_precision_is_summed_in_float32(self):
        for dtype in (torch.float16, torch.bfloat16):
            module = torch.nn.ParameterList([torch.full((3,), 256.0, dtype=dtype)]).to(GPU)
            optimizer = DistributedOptimizer(torch.optim.SGD(module.parameters(), lr=1), module)
            for _ in range(16):
                optimizer.manager.tables[0].add([0.0625] * 3)
                module[0].grad = torch.zeros_like(module[0])
                optimizer.step()
            np.testing.assert_array_equal(flat(module), 257 if dtype == torch.float16 else 256)
            np.testing.assert_array_equal(optimizer.manager.tables[0].get(), 257)

    @unittest.skipUnless(GPU == "cuda", "is about CUDA graphs")
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

    def test_compiled_modules_train_as_others(self):
        results = []
        for compiles in (False, True):
            torch.manual_seed(3)
            module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU()).to(GPU)
            model = torch.compile(module) if compiles else module
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer = DistributedOptimizer(optimizer, model, freq=2)
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.ones(3, 4, device=GPU)).square().mean().backward()
                optimizer.step()
            results.append(flat(module))
        np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)


class EmbeddingTestCase(GpuTestCase):
    def pair(self, ours, theirs, **options):
        """Return a layer of ours and one of PyTorch with equal rows, and the table of ours."""
        start = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
        table = mv.MatrixTableHandler(ROWS, DIM, start, updater="sgd", learning_rate=1.0)
        reference = theirs(ROWS, DIM, **options).to(GPU)
        with torch.no_grad():
            reference.weight.copy_(torch.from_numpy(start))
        return ours(table, **options).to(GPU), reference, table

    def check(self, layer, reference, table, *arguments, tolerance=1e-5, **options):
        """Check the outputs, and that a step subtracts the gradient of the reference."""
        before = table.get()
        given = [a.to(GPU) if isinstance(a, torch.Tensor) else a for a in arguments]
        expected = reference(*given, **{k: v.to(GPU) for k, v in options.items()})
        output = layer(*arguments, **options)
        self.assertEqual(output.device, arguments[0].device)
        self.assertEqual(output.dtype, expected.dtype)
        torch.testing.assert_close(output.to(GPU), expected)
        weights = torch.randn_like(expected)
        (output * weights.to(output.device)).sum().backward()
        reference.weight.grad = None
        (expected * weights).sum().backward()
        self.assertTrue(layer.step())
        gradient = reference.weight.grad.float().cpu().numpy()
        np.testing.assert_allclose(table.get(), before - gradient, rtol=tolerance, atol=tolerance)
        with torch.no_grad():
            reference.weight.copy_(torch.from_numpy(table.get()))


class TestEmbedding(EmbeddingTestCase):
    def test_matches_pytorch_for_ids_on_either_device(self):
        for padding_idx in (None, 3):
            options = {} if padding_idx is None else {"padding_idx": padding_idx}
            layer, reference, table = self.pair(Embedding, torch.nn.Embedding, **options)
            for device in (GPU, "cpu"):
                for shape in ((7,), (2, 3), (4, 2, 2), (), (0,), (2, 0)):
                    for dtype in (torch.int64, torch.int32):
                        ids = torch.randint(0, ROWS, shape, dtype=dtype).to(device)
                        with self.subTest(shape=shape, dtype=dtype, device=device):
                            self.check(layer, reference, table, ids)
                self.check(layer, reference, table, torch.tensor([3, 3, 1, 1], device=device))

    def test_layers_of_half_precision_match_pytorch(self):
        for dtype in (torch.float16, torch.bfloat16):
            layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
            layer, reference = layer.to(dtype), reference.to(dtype)
            for device in (GPU, "cpu"):
                ids = torch.tensor([1, 4, 4, 0], device=device)
                with self.subTest(dtype=dtype, device=device):
                    self.check(layer, reference, table, ids, tolerance=0.05)

    def test_tables_of_half_precision_match_pytorch(self):
        start = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)
        for name in ("float16", "float64"):
            table = mv.MatrixTableHandler(
                ROWS, DIM, start, dtype=name, updater="sgd", learning_rate=1.0
            )
            layer = Embedding(table).to(GPU)
            ids = torch.tensor([[2, 2], [5, 0]], device=GPU)
            np.testing.assert_array_equal(layer(ids).detach().cpu(), start[[[2, 2], [5, 0]]])
            layer(ids).sum().backward()
            layer.step()
            np.testing.assert_array_equal(table.get([0, 2, 5]), start[[0, 2, 5]] - [[1], [2], [1]])

    def test_keys_are_those_of_the_cpu(self):
        table = mv.HashTableHandler(DIM, 100, updater="sgd", learning_rate=1.0)
        keys = torch.tensor([2**60, -7, 2**60], device=GPU)
        for layer in (Embedding(table).to(GPU), EmbeddingBag(table, mode="sum").to(GPU)):
            layer(keys[None]).sum().backward()
            layer.step()
        np.testing.assert_array_equal(table.get([2**60, -7, 5], insert=False)[:, 0], [-4, -2, 0])

    def test_ids_may_change_before_the_backward_pass(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        ids = torch.tensor([1, 2], device=GPU)
        output = layer(ids)
        ids.fill_(7)
        output.sum().backward()
        layer.step()
        before[[1, 2]] -= 1
        np.testing.assert_allclose(table.get(), before, rtol=1e-6)

    def test_wrong_ids_raise_as_on_the_cpu(self):
        layer, _, _ = self.pair(Embedding, torch.nn.Embedding)
        for ids in ([ROWS], [-1]):
            with self.assertRaises(IndexError):
                layer(torch.tensor(ids, device=GPU))
        with self.assertRaisesRegex(TypeError, "int64 or int32, received torch.float32"):
            layer(torch.ones(2, device=GPU))

    def test_prefetched_rows_follow_the_batches(self):
        for loader_device in ("cpu", GPU):
            for fresh in (False, True):
                layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
                batches = [torch.randint(0, ROWS, (6,)).to(loader_device) for _ in range(9)]
                for ids in prefetch(batches, layer, depth=1 + fresh, fresh=fresh):
                    if fresh:
                        self.check(layer, reference, table, ids.to(GPU))
                    else:
                        rows = layer(ids.to(GPU)).detach().cpu()
                        np.testing.assert_array_equal(rows, table.get(ids.cpu().numpy()))

    def test_bags_match_pytorch(self):
        for mode in ("sum", "mean"):
            for options in ({"mode": mode}, {"mode": mode, "padding_idx": 4}):
                pair = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, **options)
                with self.subTest(options):
                    self.check(*pair, torch.randint(0, ROWS, (4, 6)).to(GPU))
                    offsets = torch.tensor([0, 2, 2, 5], device=GPU)  # the second bag is empty
                    ids = torch.tensor([4, 4, 1, 4, 1, 7, 7, 7], device=GPU)
                    self.check(*pair, ids, offsets)
                    self.check(*pair, torch.full((2, 3), 4, device=GPU))  # only padding
                    self.check(*pair, ids.int(), offsets.int())
                    nothing = torch.empty(0, dtype=torch.int64, device=GPU)
                    self.check(*pair, nothing, torch.tensor([0, 0], device=GPU))
        pair = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, mode="sum")
        ids, weights = torch.randint(0, ROWS, (3, 4)).to(GPU), torch.rand(3, 4, device=GPU)
        self.check(*pair, ids, per_sample_weights=weights)
        layer = EmbeddingBag(pair[2]).to(GPU)
        for shape, bags in (((0, 3), 0), ((2, 0), 2)):
            output = layer(torch.empty(shape, dtype=torch.int64, device=GPU))
            self.assertEqual(output.tolist(), [[0] * DIM] * bags)
            output.sum().backward()
            self.assertTrue(layer.step())

    def test_collections_match_pytorch(self):
        a, reference_a, _ = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, mode="sum")
        b, reference_b, _ = self.pair(EmbeddingBag, torch.nn.EmbeddingBag)
        x, y = torch.tensor([[1, 2]] * 3, device=GPU), torch.tensor([[3], [3], [5]], device=GPU)
        output = EmbeddingBagCollection({"x": a, "y": b})({"x": x, "y": y})
        torch.testing.assert_close(output["x"], reference_a(x))
        torch.testing.assert_close(output["y"], reference_b(y))

    def train(self, embedding, fused, scale, is_distributed):
        """Train rows and a layer with clipping, and a step with an infinite gradient."""
        torch.manual_seed(2)
        module = torch.nn.Sequential(embedding, torch.nn.Linear(DIM, 1)).to(GPU)
        scaler = torch.amp.GradScaler(GPU, init_scale=scale, enabled=scale != 1.0)
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0, fused=fused)
        if is_distributed:
            optimizer = DistributedOptimizer(optimizer, module, scaler=scaler)
        norms = []
        for step in range(5):
            ids = torch.randint(0, ROWS, (4, 6)).to(GPU)
            optimizer.zero_grad()
            loss = module(ids).square().mean()
            scaler.scale(loss * float("inf") if step == 2 and scale != 1.0 else loss).backward()
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 0.05)
            norms.append(norm.item())
            scaler.step(optimizer)
            scaler.update()
        return np.array(norms), flat(module[1]), scaler.get_scale()

    def test_clips_and_scales_as_pytorch(self):
        for is_sync in (False, True):
            mv.shutdown()
            mv.init(sync=is_sync)
            for scale in (1.0, 1024.0):
                for fused in (False, True):
                    with self.subTest(scale=scale, fused=fused, sync=is_sync):
                        layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
                        ours = self.train(layer, fused, scale, True)
                        theirs = self.train(reference, fused, scale, False)
                        for one, other in zip(ours, theirs, strict=True):
                            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
                        expected = reference.weight.detach().cpu().numpy()
                        np.testing.assert_allclose(table.get(), expected, rtol=1e-4, atol=1e-5)

    def test_compiled_modules_train_the_rows(self):
        layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
        compiled = torch.compile(torch.nn.Sequential(layer, torch.nn.Tanh()))
        for ids in ([1, 2], [1, 2], [3, 3, 3]):
            before = table.get()
            ids = torch.tensor(ids, device=GPU)
            compiled(ids).sum().backward()
            reference.weight.grad = None
            torch.tanh(reference(ids)).sum().backward()
            layer.step()
            gradient = reference.weight.grad.cpu().numpy()
            np.testing.assert_allclose(table.get(), before - gradient, rtol=1e-4, atol=1e-6)
            with torch.no_grad():
                reference.weight.copy_(torch.from_numpy(table.get()))


@unittest.skipUnless(GPU == "cuda", "is about CUDA streams")
class TestStreams(EmbeddingTestCase):
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
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
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


@unittest.skipUnless(GPU == "cuda", "is about tensors that NumPy cannot read")
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
