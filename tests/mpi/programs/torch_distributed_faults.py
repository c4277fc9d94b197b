"""Ranks of process groups that lose a rank: ``torch_distributed_faults.py HOW``.

The last rank ends, as HOW says, in the backward pass of a model. The other ranks report the errors
of this pass and of calls in other groups, in which the last rank takes no part either.
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

#: Seconds that a call waits for a late rank. Ranks that end are noticed before.
TIMEOUTS = {"late": 12.0}


def _background(call):
    call(async_op=True).wait()


def _of_future(call):
    call(async_op=True).get_future().then(lambda future: future.value()).wait()


def calls_of(group):
    """Return the calls in a group whose errors are reported, by name."""
    tensor = torch.ones(1000)
    parts = [torch.empty(1000) for _ in range(worker.SIZE)]

    def reduce(**options):
        return dist.all_reduce(tensor, group=group, **options)

    return {
        "all_reduce": reduce,
        "background": lambda: _background(reduce),
        "future": lambda: _of_future(reduce),
        "broadcast": lambda: dist.broadcast(tensor, LAST, group),
        "all_gather": lambda: dist.all_gather(parts, tensor, group),
        "barrier": lambda: dist.barrier(group),
    }


def end(how):
    """End the last rank."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exception":
        raise ValueError("a fault of the program")
    elif how == "exit":
        sys.exit(3)
    elif how == "destroy":
        dist.destroy_process_group()
        sys.exit()
    for rank in range(LAST):
        worker.wait_for("reported", rank)
    sys.exit()


def main(how):
    """Train until the last rank ends, and report what the others see."""
    multiverso_torch_backend.register()
    store = dist.FileStore(str(Path(os.environ["MULTIVERSO_TEST_JOB"], "store")), worker.SIZE)
    dist.init_process_group("multiverso", store=store, rank=worker.RANK, world_size=worker.SIZE)
    timeout = timedelta(seconds=TIMEOUTS.get(how, worker.WAIT_TIMEOUT))
    groups = {name: dist.new_group(timeout=timeout) for name in (*calls_of(None), "backward")}
    layers = [torch.nn.Linear(50, 50) for _ in range(4)]
    # Each layer has a bucket of its own, so that some are in flight when the rank ends.
    model = DistributedDataParallel(
        torch.nn.Sequential(*layers), process_group=groups["backward"], bucket_cap_mb=0.01
    )
    model(torch.ones(2, 50)).sum().backward()
    worker.meet("trained")
    if worker.RANK == LAST:
        layers[1].weight.register_hook(lambda _: end(how))
    loss = model(torch.ones(2, 50)).sum()
    if worker.RANK == LAST:
        loss.backward()
    worker.report_call(loss.backward, name="backward")
    # All calls in shared memory wait for a late rank in the same way.
    for name in ("all_reduce", "future") if how == "late" else calls_of(None):
        worker.report_call(calls_of(groups[name])[name], name=name)
    worker.announce("reported")
    worker.report(ended=True)


if __name__ == "__main__":
    worker.begin()
    torch.set_num_threads(1)
    main(*sys.argv[1:])
