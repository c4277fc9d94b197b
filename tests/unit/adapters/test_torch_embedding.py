"""The embedding layers for PyTorch on one rank, against PyTorch's own layers."""

import importlib.util
import unittest

import numpy as np
import pytest
import sessions

import multiverso as mv

pytestmark = pytest.mark.frameworks

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    from multiverso.torch_ext import DistributedOptimizer, Embedding, EmbeddingBag, prefetch

ROWS, DIM = 12, 5


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class EmbeddingTestCase(sessions.SessionTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def pair(self, ours, theirs, **options):
        """Return a layer of ours and one of PyTorch with equal rows, and the table of ours."""
        start = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
        table = mv.MatrixTableHandler(ROWS, DIM, start, updater="sgd", learning_rate=1.0)
        reference = theirs(ROWS, DIM, **options)
        with torch.no_grad():
            reference.weight.copy_(torch.from_numpy(start))
        return ours(table, **options), reference, table

    def check(self, layer, reference, table, *arguments, **options):
        """Check the outputs, and that a step subtracts the gradient of the reference."""
        before = table.get()
        output, expected = layer(*arguments, **options), reference(*arguments, **options)
        torch.testing.assert_close(output, expected)
        weights = torch.randn_like(expected)
        (output * weights).sum().backward()
        reference.weight.grad = None
        (expected * weights).sum().backward()
        self.assertTrue(layer.step())
        gradient = reference.weight.grad.numpy()
        np.testing.assert_allclose(table.get(), before - gradient, rtol=1e-5, atol=1e-5)
        with torch.no_grad():
            reference.weight.copy_(torch.from_numpy(table.get()))


class TestEmbedding(EmbeddingTestCase):
    def test_matches_pytorch_for_any_ids(self):
        for padding_idx in (None, 3):
            options = {} if padding_idx is None else {"padding_idx": padding_idx}
            layer, reference, table = self.pair(Embedding, torch.nn.Embedding, **options)
            for shape in ((7,), (2, 3), (4, 2, 2), (), (0,), (2, 0)):
                for dtype in (torch.int64, torch.int32):
                    ids = torch.randint(0, ROWS, shape, dtype=dtype)
                    with self.subTest(shape=shape, dtype=dtype, padding_idx=padding_idx):
                        self.check(layer, reference, table, ids)
            self.check(layer, reference, table, torch.tensor([3, 3, 1, 1]))

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

    def test_keys_get_rows_in_training_only(self):
        table = mv.HashTableHandler(DIM, 100, updater="sgd", learning_rate=1.0)
        keys = torch.tensor([2**60, -7, 2**60])
        layers = (Embedding(table), EmbeddingBag(table, mode="sum"))
        layers[0].eval()
        self.assertEqual(float(layers[0](keys).abs().sum()), 0)
        with torch.no_grad():
            layers[1](keys[None])
        layers[1].prefetch(torch.tensor([[1, 2]]))
        self.assertEqual(len(table), 2)
        layers[0].train()
        for layer in layers:
            layer(keys[None]).sum().backward()
            layer.step()
        np.testing.assert_array_equal(table.get([2**60, -7, 5], insert=False)[:, 0], [-4, -2, 0])
        self.assertEqual(len(table), 4)

    def test_result_can_be_changed_in_place(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        layer(torch.tensor([1, 1])).mul_(3).sum().backward()
        layer.step()
        np.testing.assert_allclose(table.get([1]), before[[1]] - 6, rtol=1e-6)

    def test_gradients_of_several_backward_passes_are_summed(self):
        layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        for ids in ([1, 2, 2], [2, 5]):
            layer(torch.tensor(ids)).square().sum().backward()
            reference(torch.tensor(ids)).square().sum().backward()
        layer(torch.tensor([9])).detach()  # without a backward pass
        np.testing.assert_array_equal(table.get(), before)
        layer.step()
        np.testing.assert_allclose(table.get(), before - reference.weight.grad.numpy(), rtol=1e-5)
        expected = table.get()
        layer.step()
        np.testing.assert_array_equal(table.get(), expected)

    def test_evaluation_records_nothing(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        with torch.no_grad():
            self.assertFalse(layer(torch.tensor([1])).requires_grad)
        layer.eval()
        self.assertFalse(layer(torch.tensor([1])).requires_grad)
        layer.train()
        layer(torch.tensor([2])).sum().backward()
        layer.discard()
        layer.step()
        np.testing.assert_array_equal(table.get(), before)

    def test_scaled_gradients_are_divided_or_dropped(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding)
        before = table.get()
        (layer(torch.tensor([1])).sum() * 1024).backward()
        self.assertTrue(layer.step(1024.0))
        np.testing.assert_array_equal(table.get([1]), before[[1]] - 1)
        (layer(torch.tensor([1])).sum() * float("inf")).backward()
        self.assertFalse(layer.step(1024.0))
        np.testing.assert_array_equal(table.get([1]), before[[1]] - 1)

    def test_module_has_one_scalar_parameter_and_an_empty_state(self):
        layer, _, table = self.pair(Embedding, torch.nn.Embedding, padding_idx=2)
        self.assertEqual([name for name, _ in layer.named_parameters()], ["connection"])
        self.assertEqual(layer.connection.shape, ())
        self.assertEqual(dict(layer.state_dict()), {})
        layer.load_state_dict({})
        self.assertEqual(layer.embedding_dim, DIM)
        self.assertIn(f"{table!r}, padding_idx=2", repr(layer))

    def test_rejects_invalid_arguments(self):
        table = mv.MatrixTableHandler(ROWS, DIM, updater="sgd")
        for arguments, error, message in (
            (
                (np.zeros((3, 2)),),
                TypeError,
                "expected a MatrixTableHandler or HashTableHandler, received ndarray",
            ),
            ((mv.MatrixTableHandler(3, 2),), ValueError, "takes gradients.*'add'"),
            ((table, ROWS), ValueError, "padding_idx: expected -12 to 11, received 12"),
            ((table, -ROWS - 1), ValueError, "padding_idx: expected -12 to 11, received -13"),
        ):
            with self.assertRaisesRegex(error, message):
                Embedding(*arguments)
        with self.assertRaisesRegex(ValueError, "mode: expected .*'max', received 'min'"):
            EmbeddingBag(table, mode="min")
        with self.assertRaisesRegex(TypeError, "int64 or int32, received torch.float32"):
            Embedding(table)(torch.ones(2))
        with self.assertRaises(IndexError):
            Embedding(table)(torch.tensor([ROWS]))


class TestEmbeddingBag(EmbeddingTestCase):
    def test_matches_pytorch(self):
        for mode in ("sum", "mean"):
            for options in ({"mode": mode}, {"mode": mode, "padding_idx": 4}):
                with self.subTest(options):
                    layer, reference, table = self.pair(
                        EmbeddingBag, torch.nn.EmbeddingBag, **options
                    )
                    self.check(layer, reference, table, torch.randint(0, ROWS, (4, 6)))
                    offsets = torch.tensor([0, 2, 2, 5])  # the second bag is empty
                    ids = torch.tensor([4, 4, 1, 4, 1, 7, 7, 7])
                    self.check(layer, reference, table, ids, offsets)
        layer, reference, table = self.pair(EmbeddingBag, torch.nn.EmbeddingBag, mode="sum")
        ids, weights = torch.randint(0, ROWS, (3, 4)), torch.rand(3, 4)
        self.check(layer, reference, table, ids, per_sample_weights=weights)

    def test_empty_batches_have_empty_bags(self):
        layer = self.pair(EmbeddingBag, torch.nn.EmbeddingBag)[0]
        for arguments, bags in (
            ((torch.empty(0, 3, dtype=torch.int64),), 0),
            ((torch.empty(0, dtype=torch.int64), torch.tensor([0, 0])), 2),
        ):
            output = layer(*arguments)
            self.assertEqual(output.tolist(), [[0] * DIM] * bags)
            output.sum().backward()
        self.assertTrue(layer.step())


class TestTraining(EmbeddingTestCase):
    def test_distributed_optimizer_steps_the_rows_of_its_module(self):
        layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
        linear = torch.nn.Linear(DIM, 1)
        module = torch.nn.Sequential(layer, linear)
        optimizer = DistributedOptimizer(torch.optim.SGD(module.parameters(), lr=0.0), module)
        plain = torch.optim.SGD(reference.parameters(), lr=1.0)
        for ids in torch.randint(0, ROWS, (5, 8)):
            optimizer.zero_grad()
            module(ids).square().sum().backward()
            optimizer.step()
            plain.zero_grad()
            linear(reference(ids)).square().sum().backward()
            plain.step()
        expected = reference.weight.detach().numpy()
        np.testing.assert_allclose(table.get(), expected, rtol=1e-4, atol=1e-5)

    def test_prefetched_rows_lack_the_last_changes(self):
        for depth in (1, 3):
            layer, _, table = self.pair(Embedding, torch.nn.Embedding)
            ids = torch.tensor([1, 4])
            states = [table.get([1, 4])]  # before each step
            for step, batch in enumerate(prefetch([ids] * 7, layer, depth=depth)):
                rows = layer(batch)
                np.testing.assert_array_equal(rows.detach(), states[max(0, step - depth)])
                rows.sum().backward()
                layer.step()
                states.append(table.get([1, 4]))

    def test_fresh_rows_contain_own_changes(self):
        for depth in (1, 3):
            layer, reference, table = self.pair(Embedding, torch.nn.Embedding)
            batches = [{"ids": torch.randint(0, ROWS, (6,)), "i": i} for i in range(9)]
            seen = []
            for batch in prefetch(iter(batches), layer, key="ids", depth=depth, fresh=True):
                seen.append(batch["i"])
                self.check(layer, reference, table, batch["ids"])
            self.assertEqual(seen, list(range(9)))

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
        with self.assertRaisesRegex(ValueError, "depth"):
            list(prefetch([ids], layer, depth=0))
