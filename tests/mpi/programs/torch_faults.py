"""Programs of `fault_rows.py` whose ranks are process groups of PyTorch that lose the last rank.

The last rank ends in the backward pass of a model. The others report the errors of this pass and of
calls in other groups, in which the last rank takes no part either.
"""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import worker
from torch.nn.parallel import DistributedDataParallel

import multiverso_torch_backend

LAST = worker.SIZE - 1


def _calls_of(group):
    tensor = torch.ones(1000)
    parts = [torch.empty(1000) for _ in range(worker.SIZE)]

    def future():
        work = dist.all_reduce(tensor, group=group, async_op=True)
        work.get_future().then(lambda future: future.value()).wait()

    return {
        "all_reduce": lambda: dist.all_reduce(tensor, group=group),
        "background": lambda: dist.all_reduce(tensor, group=group, async_op=True).wait(),
        "future": future,
        "broadcast": lambda: dist.broadcast(tensor, LAST, group),
        "all_gather": lambda: dist.all_gather(parts, tensor, group),
        "barrier": lambda: dist.barrier(group),
    }


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _fail():
    raise ValueError("bad batch 17")


def _destroy():
    dist.destroy_process_group()
    sys.exit()


def _come_late():
    for rank in range(LAST):
        worker.wait_for("reported", rank)
    sys.exit()


def _train(row, end):
    """Train until the last rank ends, and report what the others see."""
    torch.set_num_threads(1)
    multiverso_torch_backend.register()
    store = dist.FileStore(str(Path(os.environ["MULTIVERSO_TEST_JOB"], "store")), worker.SIZE)
    dist.init_process_group("multiverso", store=store, rank=worker.RANK, world_size=worker.SIZE)
    timeout = timedelta(seconds=row.session.get("timeout", worker.WAIT_TIMEOUT))
    groups = {name: dist.new_group(timeout=timeout) for name in row.when}
    layers = [torch.nn.Linear(50, 50) for _ in range(4)]
    # Each layer has a bucket of its own, so that some are in flight when the rank ends.
    model = DistributedDataParallel(
        torch.nn.Sequential(*layers), process_group=groups["backward"], bucket_cap_mb=0.01
    )
    model(torch.ones(2, 50)).sum().backward()
    worker.meet("trained")
    if worker.RANK == LAST:
        layers[1].weight.register_hook(lambda _: end())
    loss = model(torch.ones(2, 50)).sum()
    if worker.RANK == LAST:
        loss.backward()
    worker.report_call(loss.backward, name="backward")
    for name in row.when:
        if name != "backward":
            worker.report_call(_calls_of(groups[name])[name], name=name)
    worker.announce("reported")
    worker.report(ended=True)


PROGRAMS = {
    "torch_kill": lambda row: _train(row, _kill),
    "torch_exception": lambda row: _train(row, _fail),
    "torch_exit": lambda row: _train(row, lambda: sys.exit(3)),
    "torch_destroy": lambda row: _train(row, _destroy),
    "torch_late": lambda row: _train(row, _come_late),
}
