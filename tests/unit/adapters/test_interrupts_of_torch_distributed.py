"""An interrupt at any line of a call of torch.distributed leaves the group usable."""

import pytest
from interrupts import Case, class_of, functions_of, main
from requirements import is_installed

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch, see make test-all"),
]

if is_installed("torch"):
    import torch
    from torch import distributed as dist


def open_group():
    if not dist.is_initialized():
        dist.init_process_group("multiverso", init_method="multiverso://")


def collectives(_):
    tensor, parts = torch.ones(5), [torch.empty(5)]
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.all_gather(parts, tensor)
    dist.reduce_scatter(tensor, parts)
    dist.gather(tensor, parts, 0)
    dist.scatter(tensor, parts, 0)
    dist.all_to_all(parts, [tensor])
    dist.reduce(tensor, 0)
    dist.barrier()
    dist.all_reduce(tensor, async_op=True).wait()


GROUPS = {"collectives": [Case(collectives, open_group)]}

TestInterruptsOfTorchDistributed = class_of(__file__, GROUPS)

if __name__ == "__main__":
    main(GROUPS, functions_of({}), {})
