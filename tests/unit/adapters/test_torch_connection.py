"""What a program does to the gradients of a module's parameters is done to rows of its layers."""

import copy
import warnings

import numpy as np
import pytest
from torch_devices import HAS_TORCH, TorchTestCase, on_gpu

import multiverso as mv

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch

    from multiverso.torch_ext import DistributedOptimizer, Embedding, TorchParamManager, prefetch

ROWS, DIM = 9, 3
START = np.random.default_rng(5).standard_normal((ROWS, DIM)).astype(np.float32)


def module_of(rows):
    linear = torch.nn.Linear(DIM, 1)
    with torch.no_grad():
        linear.weight.fill_(0.5)
        linear.bias.zero_()
    return torch.nn.Sequential(rows, linear)


def layer_of_table():
    table = mv.MatrixTableHandler(ROWS, DIM, START, updater="sgd", learning_rate=1.0)
    return Embedding(table), table


class ConnectionTestCase(TorchTestCase):
    def check(self, train, distributed=True, scales=False, **options):
        """Check that a loop trains the rows as those of PyTorch's own layer."""
        self.scaler = torch.amp.GradScaler(self.device, init_scale=1024.0)
        expected = module_of(torch.nn.Embedding(ROWS, DIM)).to(self.device)
        with torch.no_grad():
            expected[0].weight.copy_(torch.from_numpy(START))
        train(expected, torch.optim.SGD(expected.parameters(), lr=0.1, **options), None)
        table = mv.MatrixTableHandler(ROWS, DIM, START, updater="sgd", learning_rate=0.1)
        module = module_of(Embedding(table)).to(self.device)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, **options)
        self.scaler = torch.amp.GradScaler(self.device, init_scale=1024.0)
        if distributed:
            scaler = self.scaler if scales else None
            optimizer = DistributedOptimizer(optimizer, module, scaler=scaler)
        train(module, optimizer, None if distributed else module[0])
        weight = expected[0].weight.detach().cpu().numpy()
        np.testing.assert_allclose(table.get(), weight, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(module[1].weight, expected[1].weight)
        self.assertEqual(module[0].connection.item(), 0.0)
        return module, optimizer


def backward(module, ids=(1, 2, 2), factor=1.0):
    ids = torch.tensor(ids, device=module[1].weight.device)
    (module(ids).square().sum() * factor).backward()


def step(optimizer, layer):
    optimizer.step()
    if layer is not None:
        layer.step()


class TestGradients(ConnectionTestCase):
    def check_all(self, train, in_modes=(False,), **options):
        for is_sync in in_modes:
            mv.shutdown()
            mv.init(sync=is_sync)
            for distributed in (True, False):
                with self.subTest(distributed=distributed, sync=is_sync):
                    self.check(train, distributed, **options)

    def test_a_reset_drops_them(self):
        for reset in (
            lambda module, _: module.zero_grad(),
            lambda module, _: module.zero_grad(set_to_none=False),
            lambda _, optimizer: optimizer.zero_grad(),
            lambda module, _: [setattr(p, "grad", None) for p in module.parameters()],
        ):

            def train(module, optimizer, layer, reset=reset):
                for factor in (1.0, 1000.0, 1.0):
                    backward(module, factor=factor)
                    if factor == 1.0:
                        step(optimizer, layer)
                    reset(module, optimizer)

            self.check_all(train)

    def test_clipping_counts_and_scales_them(self):
        def train(module, optimizer, layer):
            norms = []
            for ids in ((1, 2, 2), (0, 0), (8,)):
                module.zero_grad()
                backward(module, ids, 7.0)
                backward(module, (2, 3))
                norms.append(torch.nn.utils.clip_grad_norm_(module.parameters(), 1.5).item())
                step(optimizer, layer)
            seen.append(norms)

        seen = []
        self.check_all(train)
        np.testing.assert_allclose(seen[1], seen[0], rtol=1e-5)
        np.testing.assert_allclose(seen[3], seen[0], rtol=1e-5)

    def test_a_later_batch_or_a_factor_changes_clipped_ones(self):
        def train(module, optimizer, layer):
            backward(module)
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            backward(module, (2, 4))
            for parameter in module.parameters():
                parameter.grad = parameter.grad * -0.25
            step(optimizer, layer)

        self.check_all(train)

    def test_a_scaler_divides_them_and_skips_steps(self):
        for fused, is_unscaled in ((False, False), (False, True), (True, False), (True, True)):

            def train(module, optimizer, layer, is_unscaled=is_unscaled):
                scaler = self.scaler
                for step_count in range(3):
                    module.zero_grad()
                    infinity = float("inf") if step_count == 1 else 0.0
                    loss = module(self.tensor([1, 2, 2])).square().sum()
                    scaler.scale(loss + module[1].bias.sum() * infinity).backward()
                    if is_unscaled:
                        scaler.unscale_(optimizer)
                        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                    scaler.step(optimizer)
                    if layer is not None:
                        layer.step(scaler.get_scale())
                    scaler.update()

            self.check_all(train, (False, True), scales=fused, fused=fused)

    def test_a_frozen_layer_takes_no_step(self):
        def train(module, optimizer, layer):
            backward(module)
            step(optimizer, layer)
            module.zero_grad()
            module[0].requires_grad_(False)
            backward(module)
            step(optimizer, layer)
            module.requires_grad_(True)
            backward(module)
            step(optimizer, layer)

        self.check_all(train)

    def test_optimizers_do_not_change_the_connection(self):
        def train(module, optimizer, layer):
            for _ in range(3):
                module.zero_grad()
                backward(module)
                for parameter in module.parameters():
                    _ = parameter.grad  # Programs log the norms.
                step(optimizer, layer)

        self.check_all(train)
        for make in (
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
            lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5),
            lambda p: torch.optim.LBFGS(p, lr=0.1),
        ):
            table = mv.MatrixTableHandler(ROWS, DIM, START, updater="sgd", learning_rate=0.1)
            module = module_of(Embedding(table))
            optimizer = make(module.parameters())

            def closure(module=module, optimizer=optimizer):
                optimizer.zero_grad()
                loss = module(torch.tensor([1, 2])).square().sum()
                loss.backward()
                return loss

            for _ in range(3):
                optimizer.step(closure)
                before = table.get()
                self.assertTrue(module[0].step())
                self.assertEqual(module[0].connection.item(), 0.0)
                self.assertLess(np.abs(table.get() - before).max(), 1.0)
                self.assertFalse(np.array_equal(table.get(), before))

    def test_a_plain_step_keeps_them_until_that_of_the_layer(self):
        layer, table = layer_of_table()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            layer(torch.tensor([1])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            layer.step()
        np.testing.assert_allclose(table.get([1]), START[[1]] - 3, rtol=1e-5)

    def test_a_step_that_raised_drops_them(self):
        class Failing(torch.optim.SGD):
            def step(self, closure=None):
                if self.fails:
                    raise RuntimeError
                return super().step(closure)

        layer, table = layer_of_table()
        optimizer = Failing(layer.parameters(), lr=0.1)
        for optimizer.fails in (True, False):
            layer(torch.tensor([1])).sum().backward()
            try:
                optimizer.step()
            except RuntimeError:
                optimizer.zero_grad()
        layer.step()
        np.testing.assert_allclose(table.get([1]), START[[1]] - 1, rtol=1e-5)

    def test_not_finite_gradients_are_seen_by_a_scaler(self):
        layer, table = layer_of_table()
        module = module_of(layer)
        optimizer = torch.optim.SGD([module[0].connection], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(module(torch.tensor([1])).sum() * float("inf")).backward()
        scaler.step(optimizer)
        self.assertFalse(module[0].step(scaler.get_scale()))
        scaler.update()
        self.assertEqual(scaler.get_scale(), 2.0)
        np.testing.assert_array_equal(table.get(), START)


TestGradientsOnGpu = on_gpu(TestGradients)


class TestModule(ConnectionTestCase):
    def test_conversion_reaches_the_output(self):
        layer, table = layer_of_table()
        for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.float32):
            layer.to(dtype)
            output = layer(torch.tensor([1, 1]))
            self.assertEqual(output.dtype, dtype)
            before = table.get([1])
            output.sum().backward()
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            layer.step()
            np.testing.assert_allclose(table.get([1]), before - DIM**-0.5, rtol=1e-5)
        doubles = mv.MatrixTableHandler(3, 2, dtype="float64", updater="sgd")
        self.assertEqual(Embedding(doubles)(torch.tensor([1])).dtype, torch.float64)

    def test_a_replaced_parameter_is_connected_again(self):
        layer, table = layer_of_table()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        self.addCleanup(torch.__future__.set_overwrite_module_params_on_conversion, False)
        layer.to(torch.float64)
        layer(torch.tensor([1])).sum().backward()
        layer.zero_grad()
        layer.step()
        np.testing.assert_array_equal(table.get(), START)

    def test_old_files_load_and_files_have_no_connection(self):
        layer, table = layer_of_table()
        module = module_of(layer)
        state = module.state_dict()
        self.assertEqual(list(state), ["1.weight", "1.bias"])
        module.load_state_dict(state, strict=True)
        with self.assertRaisesRegex(RuntimeError, "Unexpected key.*0.other"):
            module.load_state_dict({**state, "0.other": torch.zeros(())})

    def test_adapters_do_not_synchronize_the_connection(self):
        table = mv.MatrixTableHandler(ROWS, DIM, START, updater="sgd")
        manager = TorchParamManager(module_of(Embedding(table)))
        self.assertEqual([t.size for t in manager.tables], [DIM + 1])

    def test_a_copy_shares_the_table_and_nothing_else(self):
        table = mv.MatrixTableHandler(ROWS, DIM, START, updater="sgd", learning_rate=1.0)
        module = module_of(Embedding(table, padding_idx=4))
        backward(module)
        module[0].prefetch(torch.tensor([3]))
        copied = copy.deepcopy(module)
        self.assertIs(copied[0].table, table)
        self.assertEqual(copied[0].padding_idx, 4)
        copied[0].step()
        np.testing.assert_array_equal(table.get(), START)
        copied[0](torch.tensor([7, 4])).sum().backward()
        self.assertAlmostEqual(copied[0].connection.grad.item(), DIM**0.5, 5)
        copied.zero_grad()
        module[0].step()
        self.assertFalse(np.array_equal(table.get(), START))
        average = torch.optim.swa_utils.AveragedModel(module)
        average.update_parameters(module)
        average.update_parameters(module)
        average.eval()
        torch.testing.assert_close(average(torch.tensor([1])), module(torch.tensor([1])))


class TestForgottenSteps(ConnectionTestCase):
    def train(self, batches, resets):
        layer, table = layer_of_table()
        module = module_of(layer)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(batches):
                if resets:
                    optimizer.zero_grad()
                module(torch.arange(100_000) % ROWS).sum().backward()
                optimizer.step()
        texts = [str(item.message) for item in caught if item.category is RuntimeWarning]
        return module, table, texts

    def test_the_second_backward_pass_warns_once(self):
        for resets in (True, False):
            self.assertEqual(self.train(1, resets)[2], [])
            module, table, texts = self.train(4, resets)
            self.assertEqual(len(texts), 1)
            self.assertRegex(texts[0], r"step\(\) of the layer has never been called")
            np.testing.assert_array_equal(table.get(), START)
            gradients = module[0]._gradients
            parts = (gradients._waiting, gradients._accepted, gradients._unscaled)
            rows = sum(len(ids) for part in parts for ids, _ in part.parts)
            self.assertLess(rows, 200_000)  # and not 400 000
            module[0].step()
            np.testing.assert_allclose(
                table.get(), START - 0.5 * 4 * np.bincount(np.arange(100_000) % ROWS)[:, None]
            )

    def test_a_distributed_optimizer_may_accumulate_batches(self):
        layer, table = layer_of_table()
        module = module_of(layer)
        DistributedOptimizer(torch.optim.SGD(module.parameters(), lr=0.0), module)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                backward(module)


class TestPrefetch(ConnectionTestCase):
    def test_a_loop_that_ends_early_leaves_no_rows(self):
        ids = [torch.tensor([i]) for i in range(1, 6)]
        for depth in (1, 3):
            for is_kept in (False, True):
                for mode in (True, False):
                    layer, table = layer_of_table()
                    loop = prefetch(ids, layer, depth=depth)
                    for batch in loop:
                        layer(batch)
                        if batch == 2:
                            break
                    if not is_kept:
                        del loop
                    table.add(np.ones((ROWS, DIM)))
                    layer.train(mode)
                    for i in range(1, ROWS):
                        np.testing.assert_array_equal(
                            layer(torch.tensor([i])).detach(), table.get([i])
                        )

    def test_a_look_up_in_another_mode_uses_other_rows(self):
        layer, table = layer_of_table()
        layer.prefetch(torch.tensor([2]))
        table.add(np.ones((ROWS, DIM)))
        with torch.no_grad():
            np.testing.assert_array_equal(layer(torch.tensor([2])), table.get([2]))
        layer.eval()
        np.testing.assert_array_equal(layer(torch.tensor([2])), table.get([2]))
        layer.train()
        np.testing.assert_array_equal(layer(torch.tensor([2])).detach(), START[[2]])

    def test_a_batch_that_is_not_looked_up_leaves_no_rows(self):
        layer, table = layer_of_table()
        loop = prefetch([torch.tensor([i]) for i in (1, 2)], layer)
        next(loop)
        next(loop)
        table.add(np.ones((ROWS, DIM)))
        np.testing.assert_array_equal(layer(torch.tensor([1])).detach(), table.get([1]))
