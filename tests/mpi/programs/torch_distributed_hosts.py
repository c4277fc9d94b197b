"""Cases for the backend of torch.distributed over hosts, where its calls are those of gloo."""

import logging

import torch_distributed as of_one_host
from cases import registrar, run_all
from torch_distributed import process_group, same, tensors_of_ranks

# Only ranks import these, at the end: pytest reads the names of the cases without PyTorch.
torch = dist = None

#: The cases that any backend passes.
CASES = {
    name: of_one_host.CASES[name]
    for name in (
        "calls_that_gloo_makes_reach_their_ranks",
        "data_parallel_models_train_as_with_gloo",
        "fully_sharded_models_train_as_with_gloo",
        "groups_that_are_destroyed_leave_nothing",
    )
}
case = registrar(CASES)


@case()
def calls_have_the_bits_of_gloo():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        given = tensors_of_ranks(1, ranks, 1000 * ranks, "float32")[me]
        results = []
        for of in (group, dist.new_group(backend="gloo")):
            tensors = [given.clone() for _ in range(4)]
            dist.all_reduce(tensors[0], dist.ReduceOp.AVG, group=of)
            work = dist.all_reduce(tensors[1], group=of, async_op=True)
            # Each rank waits for the future in its callback, too.
            doubled = work.get_future().then(lambda future: future.value()[0] * 2).wait()
            same(doubled, tensors[1] * 2)
            assert work.wait()
            assert work.is_completed()
            with dist.distributed_c10d._coalescing_manager(of):
                for tensor in tensors[2:]:
                    dist.all_reduce(tensor, group=of)
            part, whole = torch.empty(1000), torch.empty(1000 * ranks * ranks)
            dist.reduce_scatter_tensor(part, given, group=of)
            dist.all_gather_into_tensor(whole, given, group=of)
            exchanged = torch.empty_like(given)
            dist.all_to_all_single(exchanged, given, group=of)
            dist.barrier(of)
            results.append(torch.cat([*tensors, part, whole, exchanged]))
        same(*results)


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
                total = torch.ones(3)
                dist.all_reduce(total, group=group)
                assert total.tolist() == [dist.get_world_size(group)] * 3
            assert dist.get_backend() == "multiverso"
            told = [line for line in lines if "through gloo" in line]
            assert len(told) == (world.rank() in (0, 1)), lines  # The first ranks of such groups.
    finally:
        logging.getLogger("multiverso").removeHandler(handler)


if __name__ == "__main__":
    of_one_host.import_torch()
    torch, dist = of_one_host.torch, of_one_host.dist
    run_all(CASES)
