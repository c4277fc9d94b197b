"""Cases for the backend of torch.distributed, against models in NumPy and against gloo.

Those of tensors, of arguments, and of what a call returns are in another file.
"""

import gc
import os
import random
import threading
from functools import partial

import numpy as np
import torch_distributed_calls
from cases import SEED, equal, registrar, run_all
from torch_distributed_calls import Late, dist, process_group, torch

from machine.pairwise import pairwise_sum

CASES = dict(torch_distributed_calls.CASES)
case = registrar(CASES)

#: NumPy's functions for the operations of PyTorch.
FUNCTIONS = {
    "SUM": np.add,
    "AVG": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "bool")
BITWISE = ("BAND", "BOR", "BXOR")

#: Numbers of elements at which a call may change how it moves them.
SIZES = (0, 1, 2, 17, 1000, 4097, 70_001, 400_003)


def tensors_of_ranks(seed, ranks, count, dtype):
    """Return a tensor for each rank."""
    made = []
    for rank in range(ranks):
        rng = np.random.default_rng([seed, rank])
        if dtype in FLOATS:
            values = torch.from_numpy(rng.standard_normal(count) * 3)
        else:
            values = torch.from_numpy(rng.integers(-100, 100, count))
        made.append(values.to(getattr(torch, dtype)))
    return made


def combined(tensors, op):
    """Return what the documentation says of a call that combines the tensors of the ranks."""
    dtype = tensors[0].dtype
    is_half = dtype in (torch.float16, torch.bfloat16)
    arrays = [(t.float() if is_half else t).numpy() for t in tensors]
    with np.errstate(over="ignore"):
        result = pairwise_sum(arrays, FUNCTIONS[op])
    if op == "AVG":
        result = result / arrays[0].dtype.type(len(arrays))
        if not dtype.is_floating_point:
            result = np.trunc(result).astype(arrays[0].dtype)
    return torch.from_numpy(np.asarray(result)).to(dtype)


def same(actual, expected):
    """Check that two tensors have the same bits."""
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    # A new tensor has the strides that a view of its bytes needs.
    copies = [torch.empty(t.numel(), dtype=t.dtype).copy_(t.flatten()) for t in (actual, expected)]
    equal(*[t.detach().view(torch.uint8).numpy() for t in copies])


def operations(dtype):
    """Return the operations for a dtype."""
    if dtype in FLOATS:
        return [op for op in FUNCTIONS if op not in BITWISE]
    return [op for op in FUNCTIONS if op != "AVG" or dtype != "bool"]


@case()
def every_operation_combines_every_dtype():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        for dtype in (*FLOATS, *INTEGERS):
            for op in operations(dtype):
                given = tensors_of_ranks(1, ranks, 40_000, dtype)
                result = given[me].clone()
                dist.all_reduce(result, getattr(dist.ReduceOp, op))
                same(result, combined(given, op))
                parts = [tensors_of_ranks(rank, ranks, 999, dtype) for rank in range(ranks)]
                part = torch.empty_like(parts[0][0])
                dist.reduce_scatter(part, parts[me], getattr(dist.ReduceOp, op))
                same(part, combined([of[me] for of in parts], op))


@case()
def a_result_may_share_memory_with_the_part_that_this_rank_sends_itself():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        for shift in (0, 1, 3000):
            given = tensors_of_ranks(4, ranks, 8000, "float32")
            memory = torch.zeros(8000 + shift)
            memory[:8000] = given[me]
            parts = [given[me].clone() for _ in range(ranks)]
            parts[me] = memory[:8000]
            result = memory[shift:]
            dist.reduce_scatter(result, parts)
            same(result.clone(), combined(given, "SUM"))


class RandomProgram:
    """Random calls in a group, which all its ranks draw alike."""

    def __init__(self, group, global_ranks, seed):
        self.group, self.global_ranks = group, global_ranks
        self.random = random.Random(seed)
        self.me, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.later = []  # the Work and the check of a call in the background

    def step(self):
        """Make a call, perhaps in the background."""
        draw = self.random
        name = draw.choice("all_reduce broadcast deal exchange gather into reduce scatter".split())
        count, seed = draw.choice(SIZES), draw.randrange(1 << 30)
        if self.size > 2:
            count = min(count, 70_001)
        dtype = draw.choice((*FLOATS, *INTEGERS))
        given = tensors_of_ranks(seed, self.size, count, dtype)
        call, result, expected = getattr(self, name)(given, draw.choice(operations(dtype)), seed)
        work = call(group=self.group, async_op=draw.random() < 0.4)
        if work is None:
            same(result, expected)
        else:
            self.later.append((work, lambda: same(result, expected)))
        if len(self.later) > 5 or draw.random() < 0.1:
            self.settle()

    def laid(self, tensor):
        """Return a copy whose memory is dense, strided, or has the opposite sign."""
        width = self.random.choice([0, 1, 3])
        if width == 0 and tensor.dtype is not torch.bool:
            return torch._neg_view(-tensor)
        return torch.stack([tensor] * max(1, width), -1)[..., 0]

    def settle(self):
        """Wait for the calls in the background, in another order than that of the calls."""
        self.random.shuffle(self.later)
        for work, check in self.later:
            (work.get_future() if self.random.random() < 0.5 else work).wait()
            check()
        self.later = []

    def all_reduce(self, given, op, seed):
        result, op_ = self.laid(given[self.me]), getattr(dist.ReduceOp, op)
        return partial(dist.all_reduce, result, op_), result, combined(given, op)

    def reduce(self, given, op, seed):
        root, result = seed % self.size, self.laid(given[self.me])
        call = partial(dist.reduce, result, self.global_ranks[root], getattr(dist.ReduceOp, op))
        return call, result, combined(given, op) if self.me == root else given[self.me]

    def broadcast(self, given, op, seed):
        root, result = seed % self.size, self.laid(given[self.me])
        return partial(dist.broadcast, result, self.global_ranks[root]), result, given[root]

    def gather(self, given, op, seed):
        root, mine = seed % (self.size + 1), self.laid(given[self.me])  # or by all ranks
        expected = torch.stack(given) if root in (self.me, self.size) else torch.zeros(0)
        result = self.laid(torch.zeros_like(torch.stack(given)))[: len(expected)]
        if root == self.size:
            return partial(dist.all_gather, list(result), mine), result, expected
        call = partial(dist.gather, mine, list(result) or None, self.global_ranks[root])
        return call, result, expected.to(mine.dtype).reshape(result.shape)

    def deal(self, given, op, seed):
        root, result = seed % self.size, self.laid(torch.zeros_like(given[0]))
        parts = [self.laid(tensor) for tensor in given]
        call = partial(dist.scatter, result, parts if self.me == root else None)
        return partial(call, self.global_ranks[root]), result, given[self.me]

    def into(self, given, op, seed):
        expected, mine = torch.cat(given), self.laid(given[self.me])
        result = self.laid(torch.zeros_like(expected))
        return partial(dist.all_gather_into_tensor, result, mine), result, expected

    def scatter(self, given, op, seed):
        wholes = [torch.cat([t.roll(shift) for shift in range(self.size)]) for t in given]
        result, op_ = self.laid(torch.zeros_like(given[0])), getattr(dist.ReduceOp, op)
        expected, mine = combined([t.roll(self.me) for t in given], op), self.laid(wholes[self.me])
        return partial(dist.reduce_scatter_tensor, result, mine, op_), result, expected

    def exchange(self, given, op, seed):
        count = len(given[0])
        rows = np.random.default_rng(seed).multinomial(
            count, [1 / self.size] * self.size, self.size
        )
        is_equal = seed % 2 == 0 and count % self.size == 0
        if is_equal:  # The parts are equal without numbers of rows, also those of a single row.
            rows[:] = count // self.size
        pairs = zip(given, rows, strict=True)
        expected = torch.cat([t.split(r.tolist())[self.me] for t, r in pairs])
        result, mine = self.laid(torch.zeros_like(expected)), self.laid(given[self.me])
        sizes = rows[:, self.me].tolist(), rows[self.me].tolist()
        arguments = (result, mine[None]) if is_equal else (result, mine, *sizes)
        return partial(dist.all_to_all_single, *arguments), result, expected


@case()
def random_calls_in_three_groups_match_a_model():
    with process_group() as world:
        ranks = list(range(world.size()))
        groups = [(world, ranks)]
        for chosen in (ranks[: max(1, len(ranks) - 1)], ranks[-2:]):
            groups.append((dist.new_group(chosen), chosen))
        mine = [
            RandomProgram(group, chosen, SEED + number)
            for number, (group, chosen) in enumerate(groups)
            if world.rank() in chosen
        ]
        steps = int(os.environ.get("MULTIVERSO_TEST_STEPS", "60"))
        order = random.Random(SEED)
        for _ in range(steps):
            # All ranks draw, so that two groups never wait for each other in another order.
            group = order.choice(groups)[0]
            for program in mine:
                if program.group is group:
                    program.step()
        for program in mine:
            program.settle()


def steps_of(backend, wrap, steps=4):
    """Return the losses and the parameters of a small model that is trained with a group."""
    with process_group(backend) as group:
        torch.manual_seed(3)
        layers = [torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)]
        model = wrap(torch.nn.Sequential(*layers))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rng = torch.Generator().manual_seed(group.rank())
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (model(torch.randn(8, 16, generator=rng)) - 1).pow(2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
        state = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
        mine = torch.cat([p.detach().flatten() for p in state])
        found = [torch.empty_like(mine) for _ in range(group.size())]
        dist.all_gather(found, mine)
        for other in found:
            same(other, found[0])
        # A group of gloo that ends with its last model waits for its threads, and these for Python.
        del model, optimizer, layers, loss
        gc.collect()
        return losses, mine


def trains_like_gloo(wrap, rtol=1e-4):
    ours, theirs = steps_of("multiverso", wrap), steps_of("gloo", wrap)
    np.testing.assert_allclose(ours[0], theirs[0], rtol)
    np.testing.assert_allclose(ours[1].numpy(), theirs[1].numpy(), rtol, rtol / 100)


@case()
def data_parallel_models_train_as_with_gloo():
    parallel = torch.nn.parallel.DistributedDataParallel

    def in_float16(module):
        model = parallel(module, bucket_cap_mb=0.001)
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        return model

    trains_like_gloo(lambda m: torch.compile(parallel(m), backend="eager"))
    trains_like_gloo(lambda m: parallel(m, bucket_cap_mb=0.001))
    trains_like_gloo(in_float16, 1e-2)


@case()
def models_in_parts_train_and_are_saved_as_with_gloo():
    saved, of = Late("torch.distributed.checkpoint"), Late("torch.distributed.tensor.parallel")

    def sharded(module):
        folder = os.path.join(os.environ["MULTIVERSO_TEST_JOB"], dist.get_backend())
        model = Late("torch.distributed.fsdp").fully_shard(module)
        saved.save(model.state_dict(), checkpoint_id=folder)
        torch.nn.init.zeros_(model[0].weight)
        saved.load(model.state_dict(), checkpoint_id=folder)
        return model

    def split(module):
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        styles = {"0": of.ColwiseParallel(), "2": of.RowwiseParallel()}
        return of.parallelize_module(module, mesh, styles)

    trains_like_gloo(sharded)
    trains_like_gloo(split)


@case()
def pipelines_run_as_with_gloo():
    def run(backend):
        of, losses = Late("torch.distributed.pipelining"), []
        with process_group(backend) as group:
            me, last = group.rank(), group.size() - 1
            torch.manual_seed(me)
            stage = of.PipelineStage(torch.nn.Linear(8, 8), me, last + 1, torch.device("cpu"))
            schedule = of.Schedule1F1B(stage, 4, loss_fn=torch.nn.functional.mse_loss)
            ends = {"target": torch.zeros(8, 8), "losses": losses} if me == last else {}
            schedule.step(*[torch.ones(8, 8)] * (me == 0), **ends)
            return [loss.item() for loss in losses], stage.submod.weight.grad.norm().item()

    assert run("multiverso") == run("gloo")


@case()
def groups_that_are_destroyed_leave_nothing():
    def used():
        gc.collect()
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), threading.active_count(), len(list(maps))

    with process_group():
        before = None
        for number in range(int(os.environ.get("MULTIVERSO_TEST_GROUPS", "25"))):
            group = dist.new_group()
            work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
            work.get_future().wait()
            dist.destroy_process_group(group)
            del group, work
            if number == 4:
                before = used()
        after = used()
    # Another part of the program may open a file or start a thread meanwhile.
    for now, then, spare in zip(after, before, (2, 1, 20), strict=True):
        assert now <= then + spare, (before, after)


if __name__ == "__main__":
    run_all(CASES)
