"""PyTorch modules on any number of ranks: one start, all deltas, errors that reach every rank."""

from cases import equal, raises, registrar, run_all

import multiverso as mv

# Only ranks import these, so a test that reads the names of the cases does not need PyTorch.
torch = DistributedOptimizer = TorchParamManager = None

ROUNDS = 10
DTYPES = ("float32", "float64", "float16", "bfloat16")

CASES = {}

case = registrar(CASES)


def module_of(value, dtype="float32"):
    module = torch.nn.Linear(3, 2).to(getattr(torch, dtype))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)
    return module


def holds(module, value):
    for parameter in module.parameters():
        assert (parameter == value).all(), f"expected {value}, received {parameter}"


def sums(in_step=False):
    """All workers start from the master's parameters and end with all deltas."""
    me, workers = mv.worker_id(), mv.num_workers()
    modules = [module_of(me + 4, dtype) for dtype in DTYPES]
    managers = [TorchParamManager(module) for module in modules]
    for module in modules:
        holds(module, 4)
    for _ in range(ROUNDS):
        for module, manager in zip(modules, managers, strict=True):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter += me + 1
            manager.sync_all_param()
    if not in_step:
        mv.barrier()
        for manager in managers:
            manager.sync_all_param()
    for module in modules:
        holds(module, 4 + ROUNDS * workers * (workers + 1) / 2)


@case()
def workers_start_from_the_master_and_receive_all_deltas():
    sums()


@case(sync=True)
def also_in_sync_mode():
    sums(in_step=True)


def buffers_with(choice):
    """Return the mean and the count of a layer after workers have seen different data."""
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
    equal(buffers_with("average"), [100 + 3.0 * (workers + 1), 1])
    equal(buffers_with("master"), [106.0, 1])
    equal(buffers_with(False), [106.0 + 7 * me, me + 1])


@case(sync=True)
def optimizer_steps_with_the_gradients_of_all_workers():
    module = module_of(1.0)
    stepping = DistributedOptimizer(torch.optim.SGD(module.parameters(), lr=0.5), module, freq=2)
    for _ in range(4):
        stepping.zero_grad()
        (module(torch.full((1, 3), 1.0 + mv.worker_id())).sum()).backward()
        stepping.step()
    # The gradient of the weights is the input, and the gradient of the bias is one.
    inputs = mv.num_workers() * (mv.num_workers() + 1) / 2
    assert (module.weight == 1 - 4 * 0.5 * inputs).all(), module.weight
    assert (module.bias == 1 - 4 * 0.5 * mv.num_workers()).all(), module.bias


def wrong_on_the_first(make, error):
    """Rank 0 gets `error` for its object, the others a MismatchError; then all continue."""
    if mv.size() == 1:
        return
    if mv.rank() == 0:
        raises(error, make)
    else:
        raises(mv.MismatchError, lambda: TorchParamManager(module_of(0)))
    sums()


@case()
def no_parameters_on_one_rank():
    wrong_on_the_first(lambda: TorchParamManager(torch.nn.ReLU()), ValueError)


@case()
def no_optimiser_on_one_rank():
    wrong_on_the_first(lambda: DistributedOptimizer(None, None, freq=0), TypeError)


if __name__ == "__main__":
    import torch

    from multiverso.torch_ext import DistributedOptimizer, TorchParamManager

    run_all(CASES)
