"""Cases for the backend of torch.distributed over hosts, where its calls are those of gloo."""

import logging

import torch_distributed as of_one_host
from cases import registrar, run_all
from torch_distributed_calls import dist, process_group, torch

#: The cases that any backend passes.
CASES = {
    name: of_one_host.CASES[name]
    for name in (
        "calls_that_gloo_makes_reach_their_ranks",
        "data_parallel_models_train_as_with_gloo",
        "models_in_parts_train_and_are_saved_as_with_gloo",
        "groups_that_are_destroyed_leave_nothing",
    )
}
case = registrar(CASES)


@case()
def only_groups_over_hosts_are_of_gloo_and_one_line_says_so():
    from multiverso.torch_ext.distributed import MultiversoGroup
    from multiverso.torch_ext.distributed._creation import _tell_of_gloo

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("multiverso").addHandler(handler)
    _tell_of_gloo.cache_clear()
    try:
        with process_group() as world:
            mesh = dist.init_device_mesh("cpu", (2, 2))
            for group in (world, mesh.get_group(0), mesh.get_group(1)):
                is_ours = isinstance(group, MultiversoGroup)
                assert is_ours == (group is mesh.get_group(1))
                assert is_ours or type(group) is dist.ProcessGroup  # PyTorch's own
                total = torch.ones(3)
                dist.all_reduce(total, group=group)
                assert total.tolist() == [dist.get_world_size(group)] * 3
            assert dist.get_backend() == "multiverso"
            told = [line for line in lines if "through gloo" in line]
            assert len(told) == (world.rank() in (0, 1)), lines  # The first ranks of such groups.
    finally:
        logging.getLogger("multiverso").removeHandler(handler)


if __name__ == "__main__":
    run_all(CASES)
