"""Cases for PyTorch modules, on any number of ranks, in addition to those of adapter_suite.py."""

import numpy as np
from cases import equal, raises, registrar, run_all

import multiverso as mv

# Only ranks import these, at the end: pytest reads the names of the cases without PyTorch.
torch = DistributedOptimizer = Embedding = TorchParamManager = None

CASES = {}
case = registrar(CASES)


def buffers_after_sync(sync_buffers, average):
    """Return a running mean and a count of batches, after a sync of different local changes."""
    me = mv.worker_id()
    module = torch.nn.BatchNorm1d(1)
    module.running_mean.fill_(100 + me)
    manager = TorchParamManager(module, sync_buffers, average=average)
    module.running_mean += 6 * (me + 1)
    module.num_batches_tracked += me + 1
    manager.sync_all_param()
    return [module.running_mean.item(), module.num_batches_tracked.item()]


@case(sync=True)
def buffers_follow_sync_buffers():
    me, workers = mv.worker_id(), mv.num_workers()
    # "average" adds the mean of the deltas 6, 12, ... to the master's 100. Counts are not averaged;
    # they are the master's.
    for average in (False, True):
        equal(buffers_after_sync("average", average), [100 + 3.0 * (workers + 1), 1])
        equal(buffers_after_sync("master", average), [100.0 + 6, 1])
        equal(buffers_after_sync(False, average), [100.0 + me + 6 * (me + 1), me + 1])


def check_embedding():
    """Train rows that workers share and rows of their own; check the sum of all gradients."""
    me, workers = mv.worker_id(), mv.num_workers()
    table = mv.MatrixTableHandler(20, 3, updater="sgd", learning_rate=1)
    layer = Embedding(table)
    for step in range(4):
        ids = torch.tensor([10 + me, step, step] if me != 1 or step else [])  # once without ids
        layer(ids.long()).sum().backward()
        layer.step()
    mv.barrier()
    expected = np.zeros((20, 3))
    for worker_id in range(workers):
        for step in range(4):
            if worker_id != 1 or step:
                expected[10 + worker_id] -= 1
                expected[step] -= 2
    equal(table.get(), expected)


@case()
def embedding_rows_get_all_gradients():
    check_embedding()


@case(sync=True)
def embedding_rows_get_all_gradients_in_rounds():
    check_embedding()


def check_optimizer_steps(average):
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1)
    sgd = torch.optim.SGD(module.parameters(), lr=0.5)
    optimizer = DistributedOptimizer(sgd, module, freq=2, average=average)
    for _ in range(4):
        optimizer.zero_grad()
        module(torch.full((1, 3), 1.0 + mv.worker_id())).sum().backward()
        optimizer.step()
    # The gradient of each weight is the worker's input, and the gradient of each bias is one.
    workers = mv.num_workers()
    inputs = (workers + 1) / 2 * (1 if average else workers)
    assert (module.weight == 1 - 4 * 0.5 * inputs).all(), module.weight
    assert (module.bias == 1 - 4 * 0.5 * (1 if average else workers)).all(), module.bias


@case(sync=True)
def optimizer_steps_with_the_gradients_of_all_workers():
    check_optimizer_steps(average=False)


@case(sync=True)
def optimizer_steps_with_the_mean_gradient_of_the_workers():
    check_optimizer_steps(average=True)


@case()
def an_invalid_optimizer_on_one_rank_fails_on_all_ranks():
    if mv.rank() == 0:
        raises(TypeError, lambda: DistributedOptimizer(None, torch.nn.Linear(3, 2)))
    else:  # a DistributedOptimizer makes a manager, so the failure of rank 0 ends this call
        raises(mv.MismatchError, lambda: TorchParamManager(torch.nn.Linear(3, 2)))
    TorchParamManager(torch.nn.Linear(3, 2)).sync_all_param()  # the session still works


if __name__ == "__main__":
    import torch

    from multiverso.torch_ext import DistributedOptimizer, Embedding, TorchParamManager

    run_all(CASES)
