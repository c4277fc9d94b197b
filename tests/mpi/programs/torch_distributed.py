"""Cases for the backend of torch.distributed, against models in NumPy and against gloo."""

import contextlib
import gc
import itertools
import os
import random
import signal
import threading
import time

import numpy as np
from cases import SEED, TIMEOUT, equal, raises, registrar, run_all

from machine.pairwise import pairwise_sum
from multiverso.errors import StateError

# Only ranks import these, at the end: pytest reads the names of the cases without PyTorch.
torch = dist = None

CASES = {}
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


@contextlib.contextmanager
def process_group(backend="multiverso", seconds=TIMEOUT):
    """Make the default group of all ranks of the session."""
    from datetime import timedelta

    dist.init_process_group(
        backend, init_method="multiverso://", timeout=timedelta(seconds=seconds)
    )
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


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
        name = draw.choice(["all_reduce", "broadcast", "gather", "into", "scatter", "exchange"])
        count, seed = draw.choice(SIZES), draw.randrange(1 << 30)
        if self.size > 2:
            count = min(count, 70_001)
        dtype = draw.choice((*FLOATS, *INTEGERS))
        op = draw.choice(operations(dtype))
        work, check = getattr(self, name)(count, seed, dtype, op, is_async := draw.random() < 0.4)
        if is_async:
            self.later.append((work, check))
        else:
            check()
        if len(self.later) > 5 or draw.random() < 0.1:
            self.settle()

    def settle(self):
        """Wait for the calls in the background, in another order than that of the calls."""
        self.random.shuffle(self.later)
        for work, check in self.later:
            if work is not None and self.random.random() < 0.5:
                work.get_future().wait()
            elif work is not None:
                work.wait()
            check()
        self.later = []

    def all_reduce(self, count, seed, dtype, op, is_async):
        given = tensors_of_ranks(seed, self.size, count, dtype)
        result = given[self.me].clone()
        op_ = getattr(dist.ReduceOp, op)
        work = dist.all_reduce(result, op_, group=self.group, async_op=is_async)
        return work, lambda: same(result, combined(given, op))

    def broadcast(self, count, seed, dtype, op, is_async):
        given = tensors_of_ranks(seed, self.size, count, dtype)
        root = seed % self.size
        result = given[self.me].clone()
        work = dist.broadcast(result, self.global_ranks[root], self.group, is_async)
        return work, lambda: same(result, given[root])

    def gather(self, count, seed, dtype, op, is_async):
        given = tensors_of_ranks(seed, self.size, count, dtype)
        results = [torch.empty_like(t) for t in given]
        work = dist.all_gather(results, given[self.me], self.group, is_async)
        return work, lambda: [same(*pair) for pair in zip(results, given, strict=True)]

    def into(self, count, seed, dtype, op, is_async):
        given = tensors_of_ranks(seed, self.size, count, dtype)
        result = torch.empty(count * self.size, dtype=given[0].dtype)
        work = dist.all_gather_into_tensor(result, given[self.me], self.group, is_async)
        return work, lambda: same(result, torch.cat(given))

    def scatter(self, count, seed, dtype, op, is_async):
        given = tensors_of_ranks(seed, self.size, count * self.size, dtype)
        result = torch.empty(count, dtype=given[0].dtype)
        op_ = getattr(dist.ReduceOp, op)
        work = dist.reduce_scatter_tensor(result, given[self.me], op_, self.group, is_async)
        mine = [t[count * self.me : count * (self.me + 1)] for t in given]
        return work, lambda: same(result, combined(mine, op))

    def exchange(self, count, seed, dtype, op, is_async):
        rows = np.random.default_rng(seed).integers(0, 1 + count // 10, (self.size, self.size))
        given = [tensors_of_ranks(seed, 1, int(r.sum()), dtype)[0] for r in rows]
        result = torch.empty(int(rows[:, self.me].sum()), dtype=given[0].dtype)
        work = dist.all_to_all_single(
            result,
            given[self.me],
            rows[:, self.me].tolist(),
            rows[self.me].tolist(),
            self.group,
            is_async,
        )
        expected = [t.split(r.tolist())[self.me] for t, r in zip(given, rows, strict=True)]
        return work, lambda: same(result, torch.cat(expected))


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


@case()
def tensors_of_any_layout_take_part():
    with process_group() as group:
        ranks = group.size()
        total = ranks * (ranks + 1) // 2
        strided = torch.full((6, 4), group.rank() + 1.0)
        dist.all_reduce(strided[:, ::2])
        equal(strided[0].numpy(), [total, group.rank() + 1, total, group.rank() + 1])
        transposed = torch.arange(6.0).reshape(2, 3).t()
        dist.broadcast(transposed, 0)
        equal(transposed.numpy(), np.arange(6.0).reshape(2, 3).T)
        nothing = torch.zeros(0)
        dist.all_reduce(nothing)
        complex_ = torch.ones(3, dtype=torch.complex64)
        dist.all_reduce(complex_)
        equal(complex_.numpy(), np.full(3, ranks + 0j))
        gathered = [torch.zeros_like(complex_) for _ in range(ranks)]
        dist.all_gather(gathered, complex_ + 1j * group.rank())
        equal(torch.stack(gathered)[:, 2].numpy(), ranks + 1j * np.arange(ranks))
        sparse = torch.eye(3).to_sparse()
        dist.all_reduce(sparse)
        equal(sparse.to_dense().numpy(), ranks * np.eye(3))
        view = torch._neg_view(torch.full((2,), group.rank() + 1.0))
        dist.all_reduce(view, dist.ReduceOp.MAX)
        equal(view.resolve_neg().numpy(), [-1, -1])
        weight = torch.nn.Parameter(torch.ones(3, 2).t())
        for work in (dist.all_reduce(weight), dist.all_reduce(weight, async_op=True)):
            assert work is None or work.wait()
        equal(weight.detach().numpy(), np.full((2, 3), ranks**2))
        whole = torch.arange(float(ranks))
        dist.all_gather_into_tensor(whole, whole[group.rank() : group.rank() + 1])
        equal(whole.numpy(), np.arange(float(ranks)))


@case()
def tensors_of_any_layout_reach_one_rank_or_come_from_one():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        for root in range(ranks):
            strided = torch.full((3, 2), me + 1.0)
            dist.reduce(strided[:, 0], root)
            total = ranks * (ranks + 1) // 2
            equal(strided.numpy(), [[total if me == root else me + 1, me + 1]] * 3)
            rows = torch.arange(6.0 * ranks).reshape(3, 2 * ranks) + root
            found = torch.zeros(3, 2)[:, :1]
            dist.scatter(found, list(rows[:, ::2].split(1, 1)) if me == root else None, root)
            equal(found.numpy(), rows[:, 2 * me : 2 * me + 1].numpy())
            places = torch.zeros(3, 2 * ranks)
            lists = list(places[:, ::2].split(1, 1)) if me == root else None
            dist.gather(found, lists, root)
            equal(
                places[:, ::2].numpy(), rows[:, ::2].numpy() if me == root else np.zeros((3, ranks))
            )
        complex_ = torch.ones(2, dtype=torch.complex64)
        dist.reduce_scatter_tensor(complex_, torch.full((2 * ranks,), 1j, dtype=torch.complex64))
        equal(complex_.numpy(), np.full(2, ranks * 1j))
        for source in (0, None):
            if ranks > 1 and me < 2:  # The others make no call meanwhile.
                message = (torch.arange(12.0) * (1 - me)).reshape(3, 4)[:, 1::2]
                dist.send(message, 1) if me == 0 else dist.recv(message, source)
                equal(message.numpy(), np.arange(12.0).reshape(3, 4)[:, 1::2])
        dist.barrier()


@case()
def calls_that_gloo_makes_reach_their_ranks():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        objects = [None] * ranks
        dist.all_gather_object(objects, {"rank": me})
        assert [found["rank"] for found in objects] == list(range(ranks))
        one = torch.ones(2)
        dist.reduce(one, 0)
        assert me or one.tolist() == [ranks, ranks]
        found = [torch.zeros(1) for _ in range(ranks)] if me == 0 else None
        dist.gather(torch.full((1,), float(me)), found)
        assert me or [t.item() for t in found] == list(range(ranks))
        part = torch.zeros(1)
        dist.scatter(part, [torch.full((1,), 10.0 + r) for r in range(ranks)] if me == 0 else None)
        assert part.item() == 10 + me
        if ranks > 1 and me < 2:  # The others make no call meanwhile.
            message = torch.tensor([5.0])
            dist.send(message, 1) if me == 0 else dist.recv(message, 0)
            assert message.item() == 5
        dist.barrier()


@case()
def futures_and_callbacks_follow_the_calls():
    with process_group() as group:
        ranks, seen = group.size(), []
        works = []
        for number in range(20):
            work = dist.all_reduce(torch.full((3,), number + 1.0), async_op=True)
            work.get_future().then(lambda future: seen.append(future.value()[0][0].item()))
            works.append(work)
        last = works[-1].get_future().then(lambda future: future.value()[0] * 2)
        assert last.wait().tolist() == [40.0 * ranks] * 3
        assert seen == [ranks * (number + 1.0) for number in range(20)]
        assert all(work.is_completed() and work.wait() for work in works)
        # Nobody keeps the tensor of this call.
        dist.all_reduce(torch.ones(300_000), async_op=True)
        dist.barrier()
        tensors = [torch.full((5,), float(k)) for k in range(3)]
        with dist.distributed_c10d._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        assert [t[0].item() for t in tensors] == [0, ranks, 2 * ranks]


@case()
def a_callback_waits_for_a_call_of_its_own():
    def reduce_again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    with process_group() as group:
        for _ in range(20):
            work = dist.all_reduce(torch.ones(3), async_op=True)
            found = work.get_future().then(reduce_again).wait()
            assert found.tolist() == [group.size() ** 2] * 3
            # This callback waits for a call that was started before the callback was set.
            first, second = (dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2))
            second.get_future()
            assert first.get_future().then(lambda _, call=second: call.wait()).wait()


@case()
def a_call_ends_without_its_work():
    with process_group() as group:
        strided, mean = torch.ones(4, 2).t(), torch.full((3,), 5)
        dist.all_reduce(strided, async_op=True)
        dist.all_reduce(mean, dist.ReduceOp.AVG, async_op=True)
        dist.barrier()
        assert strided.tolist() == [[group.size()] * 4] * 2
        assert mean.tolist() == [5, 5, 5]


@case()
def threads_make_calls_one_after_the_other():
    with process_group() as group:
        tensors = [torch.ones(100_000) for _ in range(8)]
        threads = [threading.Thread(target=dist.all_reduce, args=(tensor,)) for tensor in tensors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(tensor.unique().tolist() == [group.size()] for tensor in tensors)


@case()
def threads_share_the_future_of_a_call_that_has_ended():
    with process_group():
        for _ in range(50):
            work, found = dist.distributed_c10d._get_default_group().barrier(ended()), []
            threads = [
                threading.Thread(
                    target=lambda work=work, into=found: into.append(work.get_future())
                )
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert all(future.done() for future in found)
            assert len(found) == 4


def ended():
    """Return the options of a barrier whose work has ended."""
    options = dist.BarrierOptions()
    options.asyncOp = False
    return options


@case()
def a_signal_handler_cannot_make_a_call_in_the_middle_of_one():
    refused = []

    def handler(*_):
        for call in (lambda: dist.all_reduce(torch.ones(1)), dist.destroy_process_group):
            try:
                call()
            except (dist.DistBackendError, StateError) as error:
                refused.append(str(error))

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with process_group() as group:
            ranks = group.size()
            if group.rank() == 0 and ranks > 1:
                # The other ranks make the call when the handler has run.
                queue = dist.distributed_c10d._get_default_group()._queue
                sender = threading.Thread(target=interrupt, args=(queue, refused, ranks))
                sender.start()
                dist.all_reduce(torch.ones(3))
                sender.join()
                assert all("in progress in this thread" in text for text in refused), refused
            elif ranks > 1:
                dist.recv(torch.zeros(1), 0)
                dist.all_reduce(torch.ones(3))
            dist.barrier()
    finally:
        signal.signal(signal.SIGUSR2, before)


def interrupt(queue, refused, ranks):
    """Send a signal to the thread in a call; let the other ranks go on when it has run."""
    while queue._turn.acquire(blocking=False):
        queue._turn.release()
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR2)
    while len(refused) < 2:
        time.sleep(0.01)
    for rank in range(1, ranks):
        dist.send(torch.ones(1), rank)


@case()
def asking_for_the_end_of_a_call_does_not_wait():
    with process_group() as group:
        if group.rank() == 0:
            work = dist.all_reduce(torch.ones(3), async_op=True)
            future = work.get_future()
            if group.size() > 1:  # The other ranks make the call after this one has sent.
                assert not work.is_completed()
                assert work.get_future() is future
                dist.send(torch.ones(1), 1)
            work.wait()
            future.wait()
            assert work.is_completed()
        else:
            if group.rank() == 1:
                dist.recv(torch.zeros(1), 0)
            dist.all_reduce(torch.ones(3))


@case()
def calls_that_differ_fail_on_all_ranks_and_the_next_succeeds():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        if ranks > 1:
            size = 4 if me == 0 else 5
            texts = ("MismatchError", "rank 0 called ", " of 4 float32")
            raises(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(size)), *texts)
            work = dist.all_reduce(torch.ones(size), async_op=True)
            raises(dist.DistBackendError, work.wait, "MismatchError")
            work = dist.broadcast(torch.ones(size), 0, async_op=True)
            raises(RuntimeError, work.get_future().wait, "MismatchError")
            assert work.exception() is not None
        one = torch.ones(1)
        dist.all_reduce(one)
        assert one.item() == ranks


def one_of_each(dtype, ranks):
    """Return calls with tensors of a dtype, of which no two fit together."""
    tensor, whole = torch.zeros(4, dtype=dtype), torch.zeros(4 * ranks, dtype=dtype)
    parts, is_root = list(whole.split(4)), dist.get_rank() == 0
    calls = {
        "broadcast": lambda: dist.broadcast(tensor, 0),
        "another root": lambda: dist.broadcast(tensor, 1),
        "all_gather": lambda: dist.all_gather(parts, tensor),
        "all_to_all": lambda: dist.all_to_all_single(whole.clone(), whole),
        "gather": lambda: dist.gather(tensor, parts if is_root else None),
        "scatter": lambda: dist.scatter(tensor, parts if is_root else None),
    }
    if dtype in (torch.float64, torch.int64):
        calls["all_reduce"] = lambda: dist.all_reduce(tensor)
        calls["MAX"] = lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX)
        calls["reduce"] = lambda: dist.reduce(tensor, 0)
        calls["reduce to 1"] = lambda: dist.reduce(tensor, 1)
        calls["reduce_scatter"] = lambda: dist.reduce_scatter_tensor(tensor, whole)
    return [(f"{name} of {dtype}", call) for name, call in calls.items()]


@case()
def no_two_calls_are_taken_for_the_same():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        dtypes = (torch.float64, torch.int64, torch.complex64, torch.uint64, torch.float8_e5m2)
        calls = [each for dtype in dtypes for each in one_of_each(dtype, ranks)]
        calls.append(("barrier", dist.barrier))
        pairs = list(itertools.combinations(calls, 2))
        for pair in random.Random(SEED).sample(pairs, 150) if ranks > 1 else ():
            try:
                raises(dist.DistBackendError, pair[0 if me == 0 else 1][1], "MismatchError")
            except AssertionError as error:
                raise AssertionError(f"{pair[0][0]} and {pair[1][0]}: {error}") from error
        dist.barrier()


@case()
def wrong_arguments_are_errors_before_the_call():
    with process_group() as group:
        ranks, one = group.size(), torch.ones(2)
        raises(TypeError, lambda: dist.all_reduce(one.to(torch.float8_e5m2)), "float8_e5m2")
        raises(TypeError, lambda: dist.all_reduce(one, dist.ReduceOp.BAND), "integers")
        raises(TypeError, lambda: dist.all_reduce(one.bool(), dist.ReduceOp.AVG), "no bool")
        wrong = torch.empty(3 * ranks + 1)
        raises(ValueError, lambda: dist.all_gather_into_tensor(wrong, torch.ones(3)), "elements")
        raises(ValueError, lambda: dist.all_gather([one] * (ranks + 1), one), "tensors")
        scalar = torch.tensor(1.0)
        raises(ValueError, lambda: dist.all_to_all_single(scalar, scalar), "a tensor with rows")
        far = torch.empty(ranks, device="meta")  # It has no memory that can be read.
        raises(TypeError, lambda: dist.all_gather_into_tensor(far, far[:1]), "on meta")
        raises(TypeError, lambda: dist.reduce_scatter_tensor(far[:1], far), "on meta")
        raises(TypeError, lambda: dist.all_to_all_single(far, far), "on meta")
        raises(ValueError, dist.monitored_barrier, "only implemented for GLOO")
        dist.all_reduce(one)
        assert one.tolist() == [ranks, ranks]
    # A rank that fails takes the store of the others with it, so each has one of its own.
    alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    lists = "cpu:multiverso,cuda:gloo"
    raises(ValueError, lambda: dist.init_process_group(lists, **alone), "'multiverso' alone")


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


def trains_like_gloo(wrap):
    ours, theirs = steps_of("multiverso", wrap), steps_of("gloo", wrap)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1].numpy(), theirs[1].numpy(), rtol=1e-4, atol=1e-6)


@case()
def data_parallel_models_train_as_with_gloo():
    from torch.nn.parallel import DistributedDataParallel

    trains_like_gloo(DistributedDataParallel)
    trains_like_gloo(lambda m: DistributedDataParallel(m, bucket_cap_mb=0.001))


@case()
def fully_sharded_models_train_as_with_gloo():
    from torch.distributed.fsdp import fully_shard

    trains_like_gloo(lambda module: fully_shard(module))


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


def import_torch():
    """Import PyTorch, and register the backend."""
    global torch, dist
    import torch
    import torch.distributed as dist

    import multiverso_torch_backend

    multiverso_torch_backend.register()
    torch.set_num_threads(1)


if __name__ == "__main__":
    import_torch()
    run_all(CASES)
