"""The embedding layers for PyTorch on one rank, against PyTorch's own layers."""

import gc
import sys
from unittest import mock

import numpy as np
import pytest
from torch_devices import HAS_TORCH, TorchTestCase, on_gpu

import multiverso as mv

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch

    from multiverso.torch_ext import (
        Embedding,
        EmbeddingBag,
        EmbeddingBagCollection,
        prefetch,
    )

ROWS, DIM = 12, 5


class EmbeddingTestCase(TorchTestCase):
    def pair(self, ours, theirs, **options):
        """Return a layer of ours and one of PyTorch with equal rows, and the table of ours."""
        start = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
        table = mv.MatrixTableHandler(ROWS, DIM, start, updater="sgd", learning_rate=1.0)
        reference = theirs(ROWS, DIM, **options).to(self.device)
        with torch.no_grad():
            reference.weight.copy_(torch.from_numpy(start))
        return ours(table, **options).to(self.device), reference, table

    def check(self, layer, reference, table, *arguments, tolerance=1e-5, **options):
        """Check the outputs, and that a step subtracts the gradient of the reference."""
        before = table.get()
        expected = reference(
            *(argument.to(self.device) for argument in arguments),
            **{name: value.to(self.device) for name, value in options.items()},
        )
        output = layer(*arguments, **options)
        self.assertEqual((output.device, output.dtype), (arguments[0].device, expected.dtype))
        torch.testing.assert_close(output.to(self.device), expected)
        weights = torch.randn_like(expected)
        (output * weights.to(output.device)).sum().backward()
        reference.weight.grad = None
        (expected * weights).sum().backward()
        self.assertTrue(layer.step())
        gradient = reference.weight.grad.float().cpu().numpy()
        np.testing.assert_allclose(table.get(), before - gradient, rtol=tolerance, atol=tolerance)
        with torch.no_grad():
            reference.weight.copy_(torch.from_numpy(table.get()))


class Jagged:
    """What a `JaggedTensor` of TorchRec offers, as far as the collection uses it."""

    def __init__(self, values, offsets, weights=None):
        self.values, self.offsets = (lambda: values), (lambda: offsets)
        self.weights_or_none = lambda: weights


class TestOnEachDevice(EmbeddingTestCase):
    """The rows, outputs and gradients of the layers, where the tensors are."""

    def devices(self):
        """Return the devices on which a program may have its ids."""
        return sorted({self.device, "cpu"})

    def test_matches_pytorch_for_ids_on_either_device(self):
        for padding_idx in (None, 3):
            options = {} if padding_idx is None else {"padding_idx": padding_idx}
            layer, reference, table = self.pair(Embedding, torch.nn.Embedding, **options)
            for device in self.devices():
                for shape in ((7,), (2, 3), (4, 2, 2), (), (0,), (2, 0)):
                    for dtype in (torch.int64, torch.int32):
                        ids = torch.randint(0, ROWS, shape, dtype=dtype).to(device)
                        with self.subTest(shape=shape, dtype=dtype, device=device):
                            self.check(layer, reference, table, ids)
                self.check(layer, reference, table, torch.tensor([3, 3, 1, 1], device=device))

    def test_ids_may_change_before_the_backward_pass(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        ids = self.tensor([1, 2])
        output = layer(ids)
        ids.fill_(7)
        output.sum().backward()
        layer.step()
        before[[1, 2]] -= 1
        np.testing.assert_allclose(table.get(), before, rtol=1e-6)

    def test_compiled_modules_train_the_rows_in_silence(self):
        layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
        backend = "eager" if self.device == "cpu" else "inductor"
        compiled = torch.compile(torch.nn.Sequential(layer, torch.nn.Tanh()), backend=backend)
        with mock.patch.object(sys, "unraisablehook") as ignored:
            for ids in map(self.tensor, ([1, 2], [1, 2], [3, 3, 3], [5])):
                before = table.get()
                compiled(ids).sum().backward()
                reference.weight.grad = None
                torch.tanh(reference(ids)).sum().backward()
                layer.step()
                gradient = reference.weight.grad.cpu().numpy()
                np.testing.assert_allclose(table.get(), before - gradient, rtol=1e-4, atol=1e-6)
                with torch.no_grad():
                    reference.weight.copy_(torch.from_numpy(table.get()))
            gc.collect()
        ignored.assert_not_called()

    def test_prefetched_rows_lack_the_last_changes(self):
        for depth in (1, 3):
            for loader_device in self.devices():
                layer, _, table = self.pair(Embedding, torch.nn.Embedding)
                ids = torch.tensor([1, 4], device=loader_device)
                states = [table.get([1, 4])]  # before each step
                for step, batch in enumerate(prefetch([ids] * 7, layer, depth=depth)):
                    rows = layer(batch.to(self.device))
                    wanted = states[max(0, step - depth)]
                    np.testing.assert_array_equal(rows.detach().cpu(), wanted)
                    rows.sum().backward()
                    layer.step()
                    states.append(table.get([1, 4]))

    def test_fresh_rows_contain_own_changes(self):
        for depth in (1, 3):
            for loader_device in self.devices():
                layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
                batches = [
                    {"ids": torch.randint(0, ROWS, (6,)).to(loader_device), "i": i}
                    for i in range(9)
                ]
                seen = []
                for batch in prefetch(iter(batches), layer, key="ids", depth=depth, fresh=True):
                    seen.append(batch["i"])
                    self.check(layer, reference, table, batch["ids"].to(self.device))
                self.assertEqual(seen, list(range(9)))

    def test_bags_match_pytorch(self):
        for mode in ("sum", "mean"):
            for options in ({"mode": mode}, {"mode": mode, "padding_idx": 4}):
                with self.subTest(options):
                    layer, reference, table = self.pair(
                        EmbeddingBag, torch.nn.EmbeddingBag, **options
                    )
                    self.check(
                        layer, reference, table, torch.randint(0, ROWS, (4, 6)).to(self.device)
                    )
                    offsets = self.tensor([0, 2, 2, 5])  # the second bag is empty
                    ids = self.tensor([4, 4, 1, 4, 1, 7, 7, 7])
                    self.check(layer, reference, table, ids, offsets)
                    self.check(layer, reference, table, self.tensor([[4] * 3] * 2))  # only padding
                    self.check(layer, reference, table, ids.int(), offsets.int())
                    nothing = self.tensor([], dtype=torch.int64)
                    self.check(layer, reference, table, nothing, self.tensor([0, 0]))
                    self.check(layer, reference, table, nothing, nothing)
        for padding_idx in (None, 4):
            options = {"mode": "sum", "padding_idx": padding_idx}
            layer, reference, table = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, **options)
            ids = torch.randint(0, ROWS, (3, 4)).to(self.device)
            weights = torch.rand(3, 4, device=self.device)
            self.check(layer, reference, table, ids, per_sample_weights=weights)
            gradients = []
            for module in (layer, reference):
                leaf = weights.clone().requires_grad_()
                module(ids, per_sample_weights=leaf).square().sum().backward()
                gradients.append(leaf.grad)
            torch.testing.assert_close(*gradients)

    def test_empty_batches_have_empty_bags(self):
        layer = self.pair(EmbeddingBag, torch.nn.EmbeddingBag)[0]
        for arguments, bags in (
            ((torch.empty(0, 3, dtype=torch.int64, device=self.device),), 0),
            ((torch.empty(2, 0, dtype=torch.int64, device=self.device),), 2),
            ((torch.empty(0, dtype=torch.int64, device=self.device), self.tensor([0, 0])), 2),
        ):
            output = layer(*arguments)
            self.assertEqual(output.tolist(), [[0] * DIM] * bags)
            output.sum().backward()
        self.assertTrue(layer.step())

    def test_one_call_looks_up_all_features_of_a_collection(self):
        a, reference_a, table_a = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, mode="sum")
        b, reference_b, table_b = self.pair(
            EmbeddingBag, torch.nn.EmbeddingBag, include_last_offset=True
        )
        bags = EmbeddingBagCollection({"x": a, "y": b, "z": a})
        self.assertEqual(len(list(bags.parameters())), 2)
        before = table_a.get(), table_b.get()
        x, y, z = self.tensor([[1, 2]] * 3), self.tensor([3, 4, 5, 5]), self.tensor([6, 6, 7])
        weights = torch.rand(3, device=self.device)
        last = self.tensor([0, 1, 4, 4])
        jagged = mock.Mock(
            to_dict=lambda: {
                "x": Jagged(x.reshape(-1), self.tensor([0, 2, 4, 6])),
                "y": Jagged(y, last),
                "z": Jagged(z, self.tensor([0, 3, 3, 3]), weights),
            }
        )
        plain = {
            "x": x,
            "y": (y, last),
            "z": (z, self.tensor([0, 3, 3]), weights),
            "more": None,
        }
        expected = {
            "x": reference_a(x),
            "y": reference_b(y, last),
            "z": reference_a(z, self.tensor([0, 3, 3]), weights),
        }
        for features in (plain, jagged):
            output = bags(features)
            self.assertEqual(list(output), ["x", "y", "z"])
            for feature, rows in expected.items():
                torch.testing.assert_close(output[feature], rows)
            sum(rows.square().sum() for rows in output.values()).backward()
        sum(2 * rows.square().sum() for rows in expected.values()).backward()
        for layer, reference, start in ((a, reference_a, before[0]), (b, reference_b, before[1])):
            self.assertEqual(len(layer._ahead), 0)
            layer.step()
            np.testing.assert_allclose(
                layer.table.get(), start - reference.weight.grad.cpu().numpy(), rtol=1e-4, atol=1e-5
            )
        with self.assertRaisesRegex(ValueError, r"received none for \['z'\]"):
            bags({"x": x, "y": (y, last)})
        with self.assertRaisesRegex(TypeError, "x: expected an EmbeddingBag, received Linear"):
            EmbeddingBagCollection({"x": torch.nn.Linear(1, 1)})


TestOnEachDeviceOnGpu = on_gpu(TestOnEachDevice)


class TestEmbedding(EmbeddingTestCase):
    def test_row_of_the_padding_takes_no_step(self):
        # A step without a gradient would move a row with momentum.
        for make in (Embedding, EmbeddingBag):
            table = mv.MatrixTableHandler(ROWS, DIM, updater="momentum", learning_rate=1.0)
            table.add(np.ones((1, DIM)), [3])
            before = table.get([3])
            layer = make(table, padding_idx=3)
            layer(torch.tensor([[3, 1, 3]])).sum().backward()
            layer.step()
            np.testing.assert_array_equal(table.get([3]), before)
            self.assertTrue((table.get([1]) < 0).all())

    def test_result_can_be_changed_in_place(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        layer(torch.tensor([1, 1])).mul_(3).sum().backward()
        layer.step()
        np.testing.assert_allclose(table.get([1]), before[[1]] - 6, rtol=1e-6)

    def test_has_the_names_of_pytorch(self):
        table, ids = mv.MatrixTableHandler(ROWS, DIM, updater="sgd"), torch.tensor([[1, 2]])
        for layer in (Embedding(table, sparse=True), EmbeddingBag(table, sparse=True)):
            self.assertEqual((layer.num_embeddings, layer.embedding_dim), (ROWS, DIM))
            self.assertTrue(layer.sparse)
            layer(input=ids)
            self.assertFalse(hasattr(layer, "weight"))
        EmbeddingBag(table)(input=ids[0], offsets=torch.tensor([0, 1]))
        keys = Embedding(mv.HashTableHandler(2, 10, updater="sgd"), padding_idx=-5)
        self.assertEqual(keys.padding_idx, -5)

    def test_padding_counts_from_the_end_and_is_zero_as_in_pytorch(self):
        ids = torch.tensor([[10, 1, 10]])
        initial = mv.initializers.Constant(2.0)
        for padding_idx in (10, -2):
            layer = Embedding(mv.MatrixTableHandler(ROWS, DIM, initial, updater="sgd"), padding_idx)
            reference = torch.nn.Embedding(ROWS, DIM, padding_idx)
            self.assertEqual(layer.padding_idx, reference.padding_idx)
            for output in (layer(ids), reference(ids)):
                self.assertEqual(output[0, ::2].abs().sum().item(), 0)
                self.assertNotEqual(output[0, 1].abs().sum().item(), 0)
        rows = torch.full((ROWS, DIM), 2.0)
        layer = Embedding.from_pretrained(rows, padding_idx=-2)
        reference = torch.nn.Embedding.from_pretrained(rows, padding_idx=-2)
        torch.testing.assert_close(layer(ids), reference(ids))

    def test_from_pretrained_is_frozen_unless_told_otherwise(self):
        rows = torch.randn(ROWS, DIM)
        for dtype in (torch.float32, torch.float64, torch.float16):
            layer = Embedding.from_pretrained(rows.to(dtype))
            self.assertEqual(layer.table.dtype.name, str(dtype).removeprefix("torch."))
            output = layer(torch.tensor([3]))
            self.assertFalse(output.requires_grad)
            torch.testing.assert_close(output.to(dtype), rows[3:4].to(dtype))
        layer = EmbeddingBag.from_pretrained(
            rows, freeze=False, mode="sum", table_options={"learning_rate": 1.0}
        )
        layer(torch.tensor([[3, 3]])).sum().backward()
        layer.step()
        np.testing.assert_allclose(layer.table.get([3]), rows[3:4].numpy() - 2, rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "expected two dimensions, received shape"):
            Embedding.from_pretrained(torch.zeros(3))

    def test_a_step_takes_any_number_as_its_scale(self):
        for scale in (2, np.float32(2), torch.tensor(2.0)):
            self.assertTrue(self.pair(Embedding, torch.nn.Embedding)[0].step(scale))

    def test_functional_calls_train_the_rows(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        parameters = dict(layer.named_parameters())

        def loss(parameters):
            return torch.func.functional_call(layer, parameters, torch.tensor([2, 2])).sum()

        torch.func.grad(loss)(parameters)
        layer.step()
        np.testing.assert_allclose(table.get([2]), before[[2]] - 2, rtol=1e-6)

        with self.assertRaisesRegex(RuntimeError, "does not have vmap support"):
            torch.vmap(layer)(torch.tensor([[2, 3], [3, 3]]))

    def test_checkpointed_layers_take_one_step(self):
        for use_reentrant in (True, False):
            layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
            before = table.get()
            scale = torch.ones((), requires_grad=True)
            for module in (layer, reference):
                torch.utils.checkpoint.checkpoint(
                    lambda x, module=module: module(torch.tensor([1, 1, 4])).square() * x,
                    scale,
                    use_reentrant=use_reentrant,
                ).sum().backward()
            layer.step()
            gradient = reference.weight.grad.numpy()
            np.testing.assert_allclose(table.get(), before - gradient, rtol=1e-5)


class TestEmbeddingBag(EmbeddingTestCase):
    def test_offsets_may_change_before_the_backward_pass(self):
        layer, _, table = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, mode="sum")
        before = table.get()
        offsets = torch.tensor([0, 1])
        output = layer(torch.tensor([1, 2, 4]), offsets)
        offsets.fill_(3)
        (output * torch.tensor([[1.0], [2.0]])).sum().backward()
        layer.step()
        before[[1, 2, 4]] -= [[1], [2], [2]]
        np.testing.assert_allclose(table.get(), before, rtol=1e-6)

    def test_bags_with_offsets_may_have_half_precision(self):
        for dtype in (torch.float16, torch.bfloat16):
            layer, _, table = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, mode="mean")
            before = table.get()
            layer.to(dtype)(torch.tensor([1, 2, 4]), torch.tensor([0, 1])).sum().backward()
            layer.step()
            before[[1, 2, 4]] -= [[1], [0.5], [0.5]]
            np.testing.assert_allclose(table.get(), before, rtol=1e-6)

    def test_raises_where_pytorch_does(self):
        layer, reference, _ = self.pair(EmbeddingBag, torch.nn.EmbeddingBag)
        ids = torch.tensor([1, 2])
        for arguments in (
            (ids,),
            (ids, torch.tensor([1])),
            (ids, torch.tensor([0, 3])),
            (ids[None], torch.tensor([0])),
            (ids[None, None],),
            (ids, torch.tensor([0]), torch.ones(2)),
        ):
            with self.subTest(arguments):
                with self.assertRaises(Exception) as expected:
                    reference(*arguments)
                with self.assertRaises(type(expected.exception)):
                    layer(*arguments)


class TestPrefetch(EmbeddingTestCase):
    def test_prefetch_of_other_ids_is_not_used(self):
        layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
        layer.prefetch(torch.tensor([1, 2]))
        layer.prefetch(torch.tensor([3, 4]))
        self.check(layer, reference, table, torch.tensor([3, 4]))
        self.check(layer, reference, table, torch.tensor([1, 2]))

    def test_prefetch_takes_batches_tuples_and_functions(self):
        layer = self.pair(Embedding, torch.nn.Embedding)[0]
        ids = torch.tensor([1])
        for batch, key in ((ids, None), ((0, ids), 1), ({"x": [ids]}, lambda b: b["x"][0])):
            self.assertEqual(len(list(prefetch([batch] * 3, layer, key=key))), 3)
