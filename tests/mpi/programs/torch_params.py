"""Cases for PyTorch modules, on any number of ranks, in addition to those of adapter_suite.py."""

import numpy as np
from cases import equal, raises, registrar, run_all

import multiverso as mv

# Only ranks import these, at the end: pytest reads the names of the cases without PyTorch.
torch = DistributedOptimizer = Embedding = EmbeddingBag = TorchParamManager = prefetch = None

CASES = {}
case = registrar(CASES)


@case(sync=True)
def a_worker_without_a_batch_only_makes_the_step():
    me, workers = mv.worker_id(), mv.num_workers()
    for ahead in (False, True):
        table = mv.MatrixTableHandler(20, 3, updater="sgd", learning_rate=1)
        layer = Embedding(table)
        batches = [torch.tensor([10 + me, step]) for step in range(5 - me)]
        batches = iter(prefetch(batches, layer) if ahead else batches)
        for _ in range(5):
            if (ids := next(batches, None)) is not None:
                layer(ids).sum().backward()
            layer.step()
        expected = np.zeros((20, 3))
        for worker_id in range(workers):
            expected[10 + worker_id] -= 5 - worker_id
            expected[: 5 - worker_id] -= 1
        equal(table.get(), expected)


@case(sync=True)
def one_worker_evaluates_alone():
    table = mv.MatrixTableHandler(20, 3, updater="sgd", learning_rate=1)
    keys = mv.HashTableHandler(3, 100, updater="sgd", learning_rate=1)
    layers = torch.nn.ModuleList([Embedding(table), Embedding(keys), EmbeddingBag(table, "sum")])
    ids = torch.tensor([[1, 2]])
    for step in range(4):
        for layer in layers:
            layer(ids).sum().backward()
            layer.step()
        if mv.worker_id() == 0:
            layers.eval()
            for _ in range(step):
                for layer in layers:
                    seen = layer(ids)[0, 0].mean().item()
                    assert seen <= 0, seen
                for _ in prefetch([ids] * 2, layers[0]):
                    layers[0](ids)
            layers.train()
            with torch.no_grad():
                layers[1](torch.tensor([[55]]))
    mv.barrier()
    equal(table.peek([1, 2]), np.full((2, 3), -8.0 * mv.num_workers()))
    equal(keys.get([1, 2, 55], insert=False)[:, 0], np.array([-4.0, -4, 0]) * mv.num_workers())
    assert len(keys) == 2


@case(sync=True)
def rates_of_rows_follow_the_schedule_in_rounds():
    table = mv.MatrixTableHandler(4, 2, updater="sgd", learning_rate=1)
    layer = Embedding(table)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 2.0**-step)
    for _ in prefetch([torch.tensor([1])] * 5, layer):
        layer(torch.tensor([1])).sum().backward()
        optimizer.step()
        layer.step()
        scheduler.step()
    equal(table.get([1]), np.full((1, 2), -mv.num_workers() * (2 - 2.0**-4)))


def after_a_skipped_step():
    """Train with a scaler and an infinite gradient on one worker; return all final weights."""
    me, workers = mv.worker_id(), mv.num_workers()
    results = []
    for fused in (False, True):
        torch.manual_seed(0)
        module = torch.nn.Linear(2, 1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, fused=fused)
        optimizer = DistributedOptimizer(optimizer, module, average=False)
        for step in range(4):
            x = torch.full((4, 2), float("inf") if step == 2 and me == workers - 1 else 1.0 + me)
            optimizer.zero_grad()
            scaler.scale(module(x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        mv.barrier()
        optimizer.sync()
        results.append(module.weight.detach().numpy())
    return results


def check_skipped_step():
    workers = mv.num_workers()
    results = after_a_skipped_step()
    # The last worker makes three of the four steps.
    steps = sum(
        4 * 0.01 * (1 + worker) * (4 - (worker == workers - 1)) for worker in range(workers)
    )
    torch.manual_seed(0)
    expected = torch.nn.Linear(2, 1).weight.detach().numpy() - steps
    for weights in results:
        np.testing.assert_allclose(weights, expected, rtol=1e-4)


@case(sync=True)
def workers_stay_together_when_a_scaler_skips_a_step():
    check_skipped_step()


@case()
def a_worker_skips_a_step_alone():
    check_skipped_step()


@case(sync=True)
def replaced_tensors_get_the_deltas_of_all_workers():
    me, workers = mv.worker_id(), mv.num_workers()
    module = torch.nn.BatchNorm1d(2)
    module.register_buffer("alias", module.weight.detach())
    manager = TorchParamManager(module)
    for step in range(3):
        state = {name: value.clone() for name, value in module.state_dict().items()}
        state["weight"] += me + 1
        state["running_mean"] += me + 1
        module.load_state_dict(state, assign=True)
        module.alias = module.weight.detach()
        manager.sync_all_param()
        total = (step + 1) * workers * (workers + 1) / 2
        equal(module.weight.detach().numpy(), [1.0 + total] * 2)
        equal(module.alias.numpy(), [1.0 + total] * 2)
        np.testing.assert_allclose(module.running_mean.numpy(), [total / workers] * 2, rtol=1e-5)


@case()
def an_invalid_optimizer_on_one_rank_fails_on_all_ranks():
    if mv.rank() == 0:
        raises(TypeError, lambda: DistributedOptimizer(None, torch.nn.Linear(3, 2)))
    else:  # a DistributedOptimizer makes a manager, so the failure of rank 0 ends this call
        raises(mv.errors.MismatchError, lambda: TorchParamManager(torch.nn.Linear(3, 2)))
    TorchParamManager(torch.nn.Linear(3, 2)).sync_all_param()  # the session still works


if __name__ == "__main__":
    import torch

    from multiverso.torch_ext import (
        DistributedOptimizer,
        Embedding,
        EmbeddingBag,
        TorchParamManager,
        prefetch,
    )

    run_all(CASES)
