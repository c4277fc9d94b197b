"""Cases for the tensors and arguments of calls of torch.distributed, and for what calls return."""

import contextlib
import importlib
import itertools
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import numpy as np
from cases import SEED, TIMEOUT, equal, raises, registrar

from multiverso.errors import StateError

CASES = {}
case = registrar(CASES)


class Late:
    """A module that only ranks import: pytest reads the names of the cases without PyTorch."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        """Import the module, and return what it has."""
        module = importlib.import_module(self._name)
        if self._name == "torch":
            module.set_num_threads(1)
            importlib.import_module("multiverso_torch_backend").register()
        return getattr(module, name)


torch, dist = Late("torch"), Late("torch.distributed")


@contextlib.contextmanager
def process_group(backend="multiverso"):
    """Make the default group of all ranks of the session."""
    dist.init_process_group(backend, init_method="multiverso://", timeout=timedelta(0, TIMEOUT))
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@case()
def tensors_of_any_layout_take_part():
    with process_group() as group:
        me, ranks = group.rank(), group.size()
        complex_, gathered = torch.tensor([1j]), torch.zeros(ranks, 1, dtype=torch.complex64)
        dist.all_reduce(complex_)
        dist.all_gather(list(gathered), complex_ + me)
        equal(gathered[:, 0].numpy(), 1j * ranks + np.arange(ranks))
        dist.all_reduce(sparse := torch.eye(3).to_sparse())
        equal(sparse.to_dense().numpy(), ranks * np.eye(3))
        weight = torch.nn.Parameter(torch.ones(3, 2).t())
        for work in (dist.all_reduce(weight), dist.all_reduce(weight, async_op=True)):
            assert work is None or work.wait()
        equal(weight.detach().numpy(), np.full((2, 3), ranks**2))
        whole = torch.arange(float(ranks))
        dist.all_gather_into_tensor(whole, whole[me : me + 1])
        equal(whole.numpy(), np.arange(float(ranks)))
        dist.reduce_scatter_tensor(complex_, gathered[:, 0])
        equal(complex_.numpy(), [1j * ranks**2 + ranks * me])
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
        one, objects = torch.full((1,), 10.0 + 5 * (me == 0)), [None] * ranks
        dist.all_gather_object(objects, {"rank": me})
        assert [found["rank"] for found in objects] == list(range(ranks))
        if ranks > 1 and me < 2:  # The others make no call meanwhile.
            dist.send(one, 1) if me == 0 else dist.recv(one, 0)
            assert one.item() == 15
        dist.barrier()


@case()
def tensors_that_stand_for_others_and_modes_take_part_through_operators():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def summed(tensor):
        copy = tensor.clone()
        dist.all_reduce(copy)
        return copy.sum()

    with process_group() as group:
        ranks, is_first = group.size(), group.rank() == 0
        pending = functional.all_reduce(torch.ones(2), "sum", group)
        dist.all_reduce(pending if is_first else torch.ones(2))  # The others pass plain tensors.
        equal((pending + 0).numpy(), [2 * ranks - 1 if is_first else ranks] * 2)
        equal(torch.func.functionalize(summed)(torch.ones(2)).numpy(), 2 * ranks)
        equal(torch.func.grad(summed)(torch.ones(2)).numpy(), [1, 1])
        with FakeTensorMode():
            dist.all_reduce(torch.ones(2))  # No rank makes a call.
        dist.broadcast(torch.ones(2, device="meta"), 0)
        with CommDebugMode() as counts:
            assert summed(torch.ones(2)) == 2 * ranks
            assert "c10d.allreduce_" in make_fx(summed)(torch.ones(2)).code
        assert counts.get_total_counts() == 2, counts.get_comm_counts()
        quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
        nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
        for kind, tensor in (("quantized", quantized), ("nested", nested)):
            raises(TypeError, lambda of=tensor: dist.reduce(of, 0), f"a {kind} one")


@case()
def arguments_have_the_names_and_forms_of_pytorch():
    with process_group() as group:
        me, last, into = group.rank(), group.size() - 1, torch.zeros(2)
        one, parts = torch.full((2,), me + 1.0), torch.zeros(last + 1, 2)
        group.allreduce(tensor=(most := one.clone()), op=dist.ReduceOp.MAX, timeout=None).wait()
        group.broadcast(tensor=(copied := one.clone()), root=last).wait()
        group.allgather(output_tensors=[list(parts)], input_tensors=[one]).wait()
        group.scatter(into, list(parts) if me == last else [], last).wait()
        group.allreduce(pair := [one.clone(), 10 * one]).wait()
        assert group._get_sequence_number_for_group() == 5
        equal(torch.stack([most, copied, into])[:, 0].numpy(), [last + 1, last + 1, me + 1])
        equal(torch.stack(pair).numpy(), np.full((2, 2), 11 * parts[:, 0].sum()))
        dist.all_reduce_coalesced([one, one])
        equal(one.numpy(), parts.sum(0).numpy())
        raises(ValueError, lambda: dist.broadcast(one, last + 1), f"received {last + 1}")


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
        calls["AVG"] = lambda: dist.all_reduce(tensor, dist.ReduceOp.AVG)
        calls["sparse"] = lambda: dist.all_reduce(tensor.to_sparse())
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
        raises(ValueError, lambda: dist.all_gather([one] * (ranks + 1), one), "tensors")
        odd = torch.ones(9)
        raises(ValueError, lambda: dist.all_to_all_single(odd, odd, [1], [1]), "whose sum is")
        raises(ValueError, lambda: dist.all_gather_into_tensor(odd, one), "elements")
        raises(ValueError, lambda: dist.all_reduce(one[:1].expand(2)), "an expanded")
        raises(ValueError, dist.monitored_barrier, "only implemented for GLOO")
        dist.barrier()
    # A rank that fails takes the store of the others with it, so each has one of its own.
    alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    made = partial(dist.init_process_group, "cpu:multiverso,cuda:gloo", **alone)
    raises(ValueError, made, "'multiverso' alone")


@case()
def futures_and_callbacks_follow_the_calls():
    with process_group() as group, torch.profiler.profile() as profile:
        ranks, seen, works = group.size(), [], []
        for number in range(20):
            work = dist.all_reduce(torch.full((3,), number + 1.0), async_op=True)
            work.get_future().then(lambda future: seen.append(future.value()[0][0].item()))
            works.append(work)
        parts = dist.all_gather_into_tensor(torch.zeros(2 * ranks), torch.ones(2), async_op=True)
        assert len(parts.get_future().wait()) == ranks  # as with gloo
        last = works[-1].get_future().then(lambda future: future.value()[0] * 2)
        assert last.wait().tolist() == [40.0 * ranks] * 3
        assert seen == [ranks * (number + 1.0) for number in range(20)]
        assert all(work.is_completed() and work.wait() for work in works)
        # Nobody keeps the works of these calls, nor the tensor of the first.
        strided, mean = torch.ones(4, 2).t(), torch.full((3,), 5)
        for tensor, op in ((torch.ones(300_000), "SUM"), (strided, "SUM"), (mean, "AVG")):
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op), async_op=True)
        dist.barrier()
        profile.stop()
        assert len([e for e in profile.events() if e.name == "multiverso:all_reduce"]) == 23
        assert (strided.unique().tolist(), mean.unique().tolist()) == ([ranks], [5])
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


def in_threads(*calls):
    """Make each call in a thread of its own, and return the results."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [made.result() for made in [threads.submit(call) for call in calls]]


@case()
def threads_make_calls_and_share_futures():
    with process_group() as group:
        tensors = [torch.ones(100_000) for _ in range(8)]
        in_threads(*[partial(dist.all_reduce, tensor) for tensor in tensors])
        assert all(tensor.unique().tolist() == [group.size()] for tensor in tensors)
        options = dist.BarrierOptions()
        options.asyncOp = False
        for _ in range(50):
            work = group.barrier(options)
            assert all(future.done() for future in in_threads(*[work.get_future] * 4))


@case()
def a_signal_handler_cannot_make_a_call_in_the_middle_of_one():
    refused = []

    def handler(*_):
        for call in (lambda: dist.all_reduce(torch.ones(1)), dist.destroy_process_group):
            try:
                call()
            except (dist.DistBackendError, StateError) as error:
                refused.append(str(error))

    def interrupt():
        while group._queue._turn.acquire(blocking=False):
            group._queue._turn.release()
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR2)
        while len(refused) < 2:
            time.sleep(0.01)
        for rank in range(1, ranks):
            dist.send(torch.ones(1), rank)

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with process_group() as group:
            ranks = group.size()
            if group.rank() == 0 and ranks > 1:
                # The other ranks make the call when the handler has run.
                sender = threading.Thread(target=interrupt)
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


@case()
def each_call_and_each_group_has_its_limit():
    with process_group() as world:
        short, options, one = timedelta(seconds=0.1), dist.AllreduceOptions(), torch.ones(1)
        options.timeout, others = short, range(1, world.size())
        groups = [dist.new_group(timeout=timedelta(seconds=TIMEOUT)) for _ in range(2)]
        dist.distributed_c10d._set_pg_timeout(short, groups[0])
        if world.rank() == 0 and others:
            late = [partial(dist.barrier, groups[0]), groups[1].allreduce([one], options).wait]
            for call in late:
                error = raises(RuntimeError, call, "OperationTimeout", "timed out", " in ")
                assert error.__suppress_context__ or not error.__context__
                assert "aggregate" not in str(error)
            work = dist.all_reduce(one, async_op=True)
            assert not work.is_completed()
            assert work.get_future() is work.get_future()  # Neither waits for the other ranks.
            raises(RuntimeError, partial(work.wait, short), "timed out")
            in_threads(*[partial(dist.send, torch.ones(1), rank) for rank in others])
            assert work.wait()
        elif others:
            dist.recv(one, 0)
            dist.all_reduce(one)


@case()
def a_forked_child_can_make_no_call_and_ends():
    with process_group() as group, group._queue._turn:  # as a thread of the parent may hold it
        if os.fork() == 0:
            signal.alarm(int(TIMEOUT))
            for call in (dist.all_reduce, partial(dist.all_reduce, async_op=True), group.broadcast):
                raises(RuntimeError, partial(call, torch.ones(1)), "ForkedError")
            dist.destroy_process_group()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
