"""Cases about PyTorch modules on any number of ranks that adapter_suite.py does not cover."""

from cases import equal, raises, registrar, run_all

import multiverso as mv

# Only ranks import these modules, so pytest can read the names of the cases without PyTorch.
torch = DistributedOptimizer = TorchParamManager = None

CASES = {}

case = registrar(CASES)


def buffers_after_sync(choice):
    """Return a mean and a count that each worker changed differently, after a sync."""
    me = mv.worker_id()
    module = torch.nn.BatchNorm1d(1)
    module.running_mean.fill_(100 + me)  # only the master's value is used
    manager = TorchParamManager(module, choice)
    module.running_mean += 6 * (me + 1)
    module.num_batches_tracked += me + 1
    manager.sync_all_param()
    return [module.running_mean.item(), module.num_batches_tracked.item()]


@case(sync=True)
def buffers_follow_the_sync_option():
    me, workers = mv.worker_id(), mv.num_workers()
    # Counts are not averaged; they are taken from the master.
    equal(buffers_after_sync("average"), [100 + 3.0 * (workers + 1), 1])
    equal(buffers_after_sync("master"), [106.0, 1])
    equal(buffers_after_sync(False), [106.0 + 7 * me, me + 1])


@case(sync=True)
def optimizer_steps_with_the_gradients_of_all_workers():
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1)
    optimizer = DistributedOptimizer(torch.optim.SGD(module.parameters(), lr=0.5), module, freq=2)
    for _ in range(4):
        optimizer.zero_grad()
        (module(torch.full((1, 3), 1.0 + mv.worker_id())).sum()).backward()
        optimizer.step()
    # The gradient of the weights is the input, and the gradient of the bias is one.
    inputs = mv.num_workers() * (mv.num_workers() + 1) / 2
    assert (module.weight == 1 - 4 * 0.5 * inputs).all(), module.weight
    assert (module.bias == 1 - 4 * 0.5 * mv.num_workers()).all(), module.bias


@case()
def no_optimizer_on_one_rank():
    if mv.size() == 1:
        return
    if mv.rank() == 0:
        raises(TypeError, lambda: DistributedOptimizer(None, None, freq=0))
    else:
        raises(mv.MismatchError, lambda: TorchParamManager(torch.nn.Linear(3, 2)))
    TorchParamManager(torch.nn.Linear(3, 2)).sync_all_param()


if __name__ == "__main__":
    import torch

    from multiverso.torch_ext import DistributedOptimizer, TorchParamManager

    run_all(CASES)
