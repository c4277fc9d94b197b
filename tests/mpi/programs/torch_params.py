"""What each rank sees of a module of PyTorch that all workers train."""

import sys

import worker

worker.begin()

import torch  # noqa: E402

import multiverso as mv  # noqa: E402
from multiverso.torch_ext import DistributedOptimizer, TorchParamManager  # noqa: E402

ROUNDS = 10
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def module_of(value, dtype):
    module = torch.nn.Linear(3, 2).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)
    return module


def holds(module, value):
    return all(bool((parameter == value).all()) for parameter in module.parameters())


def sums(in_step):
    """All start from the master's parameters and end with everybody's gains."""
    me, workers = mv.worker_id(), mv.num_workers()
    modules = [module_of(me + 4, dtype) for dtype in DTYPES]
    managers = [TorchParamManager(module) for module in modules]
    worker.report(starts=[holds(module, 4) for module in modules])
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
    end = 4 + ROUNDS * workers * (workers + 1) / 2
    worker.report(ends=[holds(module, end) for module in modules])


def buffers():
    """Statistics are averaged, the master's, or each worker's own."""
    me = mv.worker_id()
    seen = {}
    for choice in ("average", "master", False):
        module = torch.nn.BatchNorm1d(1)
        module.running_mean.fill_(100 + me)  # of which only the master's counts
        manager = TorchParamManager(module, choice)
        module.running_mean += 6 * (me + 1)
        module.num_batches_tracked += me + 1
        manager.sync_all_param()
        seen[str(choice)] = [module.running_mean.item(), module.num_batches_tracked.item()]
    worker.report(buffers=seen)


def optimizer():
    """Make steps of SGD with the gradients of all workers."""
    module = module_of(1.0, torch.float32)
    stepping = DistributedOptimizer(torch.optim.SGD(module.parameters(), lr=0.5), module, freq=2)
    for _ in range(4):
        stepping.zero_grad()
        (module(torch.full((1, 3), 1.0 + mv.worker_id())).sum()).backward()
        stepping.step()
    # The gradient of the weights is the input, that of the bias one.
    inputs = mv.num_workers() * (mv.num_workers() + 1) / 2
    worker.report(
        weight=bool((module.weight == 1 - 4 * 0.5 * inputs).all()),
        bias=bool((module.bias == 1 - 4 * 0.5 * mv.num_workers()).all()),
    )


def wrong_on_one(make):
    """Rank 0 makes something else than the others; report what they get, and that all go on."""
    worker.report_call(
        make if mv.rank() == 0 else lambda: TorchParamManager(module_of(0, DTYPES[0]))
    )
    mv.barrier()


scenario = sys.argv[1]
with mv.session(sync=scenario in ("sync", "buffers", "optimizer")):
    if scenario in ("async", "sync"):
        sums(scenario == "sync")
    elif scenario == "buffers":
        buffers()
    elif scenario == "optimizer":
        optimizer()
    elif scenario == "empty":
        wrong_on_one(lambda: TorchParamManager(torch.nn.ReLU()))
    else:
        wrong_on_one(lambda: DistributedOptimizer(None, None, freq=0))
