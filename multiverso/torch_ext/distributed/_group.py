"""A process group of torch.distributed whose ranks share the memory of a machine."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_int32
from datetime import timedelta
from typing import Any, Final

import torch
from torch import Tensor, distributed
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.distributed import distributed_c10d as c10d

from multiverso._native import capi
from multiverso.errors import ForkedError, MultiversoError
from multiverso.torch_ext.distributed import _calls, _plans as plans
from multiverso.torch_ext.distributed._arguments import (
    NAMES,
    as_list,
    is_sync,
    only,
    only_list,
    op_of,
    options,
    require_rank,
    require_ranks,
    root_of,
    seconds_of,
)
from multiverso.torch_ext.distributed._calls import SharedMemory
from multiverso.torch_ext.distributed._operators import (
    group_of_operators,
    is_seen,
    through_operator,
)
from multiverso.torch_ext.distributed._queue import CallQueue
from multiverso.torch_ext.distributed._tensors import NoMemoryError, dense, is_dense
from multiverso.torch_ext.distributed._work import ErrorsOfPyTorch, Received, Work, untraced

# The keys are the operations' numbers, because PyTorch takes long to hash an operation.
_OP_ARGUMENTS: Final = {int(op): c_int32(code) for op, code in _calls.OPS.items()}
_DTYPE_ARGUMENTS: Final = {dtype: c_int32(code) for dtype, code in _calls.DTYPES.items()}

#: The memory of the groups of this process that it has not left.
_open: Final[weakref.WeakSet[SharedMemory]] = weakref.WeakSet()


def _as_in_pytorch(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method take PyTorch's names of arguments, tensors without memory, and modes."""
    own = frozenset(method.__code__.co_varnames[: method.__code__.co_argcount])

    @functools.wraps(method)
    def call(self: MultiversoGroup, *args: Any, **named: Any) -> Any:
        ours = named and {
            name if name in own else NAMES.get(name, name): value for name, value in named.items()
        }
        if is_seen():
            return through_operator(self, method, args, named, ours)
        try:
            return method(self, *args, **ours)
        except NoMemoryError:
            return through_operator(self, method, args, named, ours)

    return call


@untraced
class MultiversoGroup(distributed.ProcessGroup):  # type: ignore[misc]  # PyTorch has no types.
    """A group of ranks that share memory.

    Sums, copies and barriers are calls of a session of these ranks. PyTorch sends what this class
    does not define to a group of gloo inside.
    """

    def __init__(
        self,
        store: distributed.Store,
        rank: int,
        ranks: list[int],
        job: str,
        timeout: timedelta,
    ) -> None:
        super().__init__(rank, len(ranks))
        self._errors = ErrorsOfPyTorch(f"ranks {ranks}")
        self._memory = SharedMemory(job, rank, len(ranks), timeout)
        _open.add(self._memory)
        self._queue = CallQueue()
        self._calls = 0
        self._is_alone = len(ranks) == 1
        self._store = store
        self._gloo = _Gloo(store, rank, len(ranks), timeout)
        self._operators: distributed.ProcessGroup | None = None
        self._register_backend(
            torch.device("cpu"), distributed.ProcessGroup.BackendType.GLOO, self._gloo
        )

    def getBackendName(self) -> str:  # noqa: N802 (a name of PyTorch)
        """Return the name of the backend."""
        return "multiverso"

    def get_group_store(self) -> distributed.Store:
        """Return the store at which the ranks have met."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long later calls wait for other ranks, unless they have a limit of their own."""
        self._gloo._set_default_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collective calls this rank has made."""
        return self._calls

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing, since all ranks count from the beginning."""

    def through_operators(self) -> distributed.ProcessGroup:
        """Return a group whose calls are operators of PyTorch, of which gloo makes those left."""
        if self._operators is None:
            self._operators = group_of_operators(self._store, self.rank(), self.size(), self._gloo)
        return self._operators

    def shutdown(self) -> None:
        """Wait for the calls of this rank, and leave the group. Not collective."""
        self._leave("its process group was destroyed", self._gloo.seconds)

    def abort(self) -> None:
        """Leave the group at once. Calls in flight fail, also on the other ranks."""
        self._leave("its process group was aborted")

    def _leave(self, reason: str, seconds: float | None = None) -> None:
        try:
            self._queue.require_parent()
        except ForkedError:
            return  # The group is the parent's.
        if seconds is not None:
            self._queue.drain(seconds)
        self._queue.require_no_call()
        self._queue.end(reason)
        self._memory.leave(reason)
        _open.discard(self._memory)

    # ---- Collectives, with the signatures of PyTorch

    @_as_in_pytorch
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Combine a tensor over the ranks, in place, or several, which all get one result."""
        tensor = tensors[0] if tensors.__class__ is list and len(tensors) == 1 else tensors
        op, seconds = op_of(opts), seconds_of(opts, timeout) or self._gloo.seconds
        if isinstance(tensor, Tensor) and is_dense(tensor):
            # Each look at an operation of PyTorch takes as long as half a sum of a small tensor.
            code, dtype = _OP_ARGUMENTS.get(int(op)), _DTYPE_ARGUMENTS.get(tensor.dtype)
            if code is not None and dtype is not None and _is_simple(code, tensor):
                return self._begin(
                    "all_reduce",
                    lambda: self._aggregate(code, dtype, tensor, seconds),
                    [tensor],
                    opts,
                )
        found = as_list(tensors)
        is_coo = not found[0].is_nested and found[0].layout is torch.sparse_coo
        if is_coo or found[0].is_cuda:
            wanted = options(c10d.AllreduceOptions, opts)
            made = plans.by_gloo(
                "all_reduce", found[0], lambda: self._gloo.allreduce(found, wanted)
            )
        else:
            made = plans.reduction_of_all(found, self.size(), op)
        return self._make("all_reduce", [made], found, opts, timeout)

    @_as_in_pytorch
    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        """Combine several tensors over the ranks, in place."""
        made = plans.reductions(tensors, self.size(), op_of(opts))
        return self._make("all_reduce", made, tensors, opts)

    @_as_in_pytorch
    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Combine a tensor over the ranks, on one of them."""
        tensor, root = only(tensors), root_of(opts, self.size())
        wanted = op_of(op if isinstance(opts, int) else opts)
        made = plans.reduction_to_one(tensor, root, self.rank(), self.size(), wanted)
        return self._make("reduce", [made], [tensor], opts, timeout)

    @_as_in_pytorch
    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Copy a tensor of one rank to the others."""
        found, root = as_list(tensors), root_of(opts, self.size())
        if found[0].is_cuda:
            wanted = options(c10d.BroadcastOptions, opts)
            call = functools.partial(self._gloo.broadcast, found, wanted)
            made = plans.by_gloo("broadcast", found[0], call)
        else:
            made = plans.broadcast(found, root, getattr(opts, "rootTensor", 0))
        return self._make("broadcast", [made], found, opts, timeout)

    @_as_in_pytorch
    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Copy the tensors of all ranks to a list."""
        tensor, output = only(inputs), only_list(outputs)
        require_ranks("output", output, self.size())
        if tensor.is_cuda:
            wanted = options(c10d.AllgatherOptions, opts)
            call = functools.partial(self._gloo.allgather, [output], [tensor], wanted)
            made = plans.by_gloo("all_gather", tensor, call)
        else:
            made = plans.gather(output, tensor)
        return self._make("all_gather", [made], output, opts, timeout)

    @_as_in_pytorch
    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Copy the tensors of all ranks to a list on one of them."""
        tensor, output = only(inputs), only_list(outputs) if outputs else []
        if output:
            require_ranks("output", output, self.size())
        made = plans.to_one(output, tensor, root_of(opts, self.size()), self.size())
        return self._make("gather", [made], output, opts, timeout)

    @_as_in_pytorch
    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Copy a tensor of a list that one rank has to each rank."""
        output, parts = only(outputs), only_list(inputs) if inputs else []
        if parts:
            require_ranks("input", parts, self.size())
        made = plans.from_one(output, parts, root_of(opts, self.size()), self.size())
        return self._make("scatter", [made], [output], opts, timeout)

    @_as_in_pytorch
    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Copy several tensors of all ranks; ``outputs[rank]`` has those of one rank."""
        require_ranks("output", outputs, self.size())
        made = [plans.gather([of[i] for of in outputs], t) for i, t in enumerate(inputs)]
        return self._make("all_gather", made, outputs, opts)

    @_as_in_pytorch
    def _allgather_base(self, outputs: Tensor, inputs: Tensor, opts: Any = None) -> Any:
        """Copy the tensors of all ranks to the parts of one."""
        made = plans.gather_into(outputs, inputs, self.size())
        parts = [part for (part,) in self._parts([outputs], opts)]
        return self._make("all_gather_into_tensor", [made], parts, opts)

    @_as_in_pytorch
    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Do so with several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        made = [plans.gather_into(output, t, self.size()) for output, t in pairs]
        return self._make("all_gather_into_tensor", made, self._parts(outputs, opts), opts)

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _parts(self, outputs: Sequence[Tensor], opts: Any) -> list[tuple[Tensor, ...]]:
        """Return the parts of each rank, which the future has if the caller may ask for it."""
        if is_sync(opts):
            return []
        return list(zip(*[output.chunk(self.size()) for output in outputs], strict=True))

    @_as_in_pytorch
    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Combine the tensors that the ranks have for this one."""
        output, parts = only(outputs), only_list(inputs)
        require_ranks("input", parts, self.size())
        made = plans.scatter(output, parts, op_of(opts))
        return self._make("reduce_scatter", [made], [output], opts, timeout)

    @_as_in_pytorch
    def _reduce_scatter_base(self, outputs: Tensor, inputs: Tensor, opts: Any = None) -> Any:
        """Combine the parts that the tensors of all ranks have for this one."""
        return self._scatter_from([outputs], [inputs], opts)

    @_as_in_pytorch
    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Do so with several tensors."""
        return self._scatter_from(outputs, inputs, opts)

    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _scatter_from(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any) -> Any:
        pairs, op = zip(outputs, inputs, strict=True), op_of(opts)
        made = [plans.scatter_from(output, t, self.size(), op) for output, t in pairs]
        return self._make("reduce_scatter_tensor", made, outputs, opts)

    @_as_in_pytorch
    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Send a tensor to each rank, and receive one from each."""
        require_ranks("output", outputs, self.size())
        require_ranks("input", inputs, self.size())
        return self._make("all_to_all", [plans.exchange(outputs, inputs)], outputs, opts)

    @_as_in_pytorch
    def alltoall_base(
        self,
        outputs: Tensor,
        inputs: Tensor,
        output_rows: Sequence[int] = (),
        input_rows: Sequence[int] = (),
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Send rows of a tensor to each rank, and receive rows from each."""
        made = plans.exchange_rows(outputs, inputs, self.size(), output_rows, input_rows)
        return self._make("all_to_all_single", [made], [outputs], opts, timeout)

    all_to_all_single = alltoall_base

    @_as_in_pytorch
    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Wait for all ranks."""
        return self._make("barrier", [plans.barrier()], [], opts, timeout)

    # ---- Between two ranks, through gloo

    @_as_in_pytorch
    def send(self, tensors: Any, rank: int, tag: int = 0) -> Any:
        """Send a tensor to a rank."""
        source = dense(only(tensors))
        return self._with_gloo("send", rank, lambda: self._gloo.send([source], rank, tag))

    @_as_in_pytorch
    def recv(self, tensors: Any, rank: int, tag: int = 0) -> Any:
        """Receive a tensor from a rank."""
        whole, finish = plans.writable(only(tensors))
        work = self._with_gloo("recv", rank, lambda: self._gloo.recv([whole], rank, tag))
        return Received.when_copied(work, finish)

    @_as_in_pytorch
    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive a tensor from any rank."""
        whole, finish = plans.writable(only(tensors))
        work = self._with_gloo("recv", 0, lambda: self._gloo.recv_anysource([whole], tag))
        return Received.when_copied(work, finish)

    def _with_gloo(self, name: str, rank: int, make: Callable[[], Any]) -> Any:
        """Start a call of gloo with another rank, whose number must be one of the group."""
        require_rank(rank, self.size())
        try:
            self._queue.require_open()
        except MultiversoError as error:
            raise self._errors.converted(error, name) from None
        with record_function(f"multiverso:{name}"):
            return make()

    # ---- How a call is made

    def _make(
        self,
        name: str,
        made: list[plans.Plan],
        result: Sequence[Any],
        opts: Any,
        timeout: timedelta | None = None,
    ) -> Work:
        """Make the calls of plans."""
        seconds = seconds_of(opts, timeout) or self._gloo.seconds
        return self._begin(name, functools.partial(self._run, made, seconds), list(result), opts)

    def _begin(self, name: str, make: Callable[[], None], result: list[Any], opts: Any) -> Work:
        """Make a call at once if the caller waits for it, else in the background."""
        self._calls += 1
        try:
            if not _profiler_enabled():
                return self._begin_unseen(name, make, result, opts)
            with record_function(f"multiverso:{name}"):
                return self._begin_unseen(name, make, result, opts)
        except Exception as error:
            raise self._errors.converted(error, name) from None

    def _begin_unseen(
        self, name: str, make: Callable[[], None], result: list[Any], opts: Any
    ) -> Work:
        # A single rank waits for nobody, and to wake a thread takes longer than most of its calls.
        if not self._is_alone and not is_sync(opts):
            return Work(result, self._queue, self._errors, name, make)
        self._queue.run(make)
        return Work(result, self._queue, self._errors, name)

    def _aggregate(self, op: Any, dtype: Any, tensor: Tensor, seconds: float) -> None:
        memory = self._memory
        if seconds != memory.seconds:  # A call would take longer than the comparison.
            memory.limit(seconds)
        memory.aggregate(op, dtype, tensor)

    def _run(self, made: list[plans.Plan], seconds: float) -> None:
        self._memory.limit(seconds)
        for plan in made:
            for call in plan.calls:
                self._memory.run(call)
        # The caller may be in no_grad or inference_mode, which are modes of its thread.
        with torch.inference_mode():
            for plan in made:
                for step in plan.finish:
                    step()


class _Gloo(distributed.ProcessGroupGloo):  # type: ignore[misc]  # PyTorch has no types for it.
    """A group of gloo. PyTorch tells it the limit of the calls of the whole group."""

    #: The groups of this process, which a forked child cannot end.
    _all: Final[weakref.WeakSet[_Gloo]] = weakref.WeakSet()

    def __init__(self, store: distributed.Store, rank: int, size: int, timeout: timedelta) -> None:
        # The ranks connect now. A call that connects two ranks would wait for the other one.
        super().__init__(distributed.PrefixStore("gloo", store), rank, size, timeout)
        self.seconds = timeout.total_seconds()
        self._all.add(self)

    def _set_default_timeout(self, timeout: timedelta) -> None:
        super()._set_default_timeout(timeout)
        self.seconds = timeout.total_seconds()

    @classmethod
    def keep_all_in_child(cls) -> None:
        """Keep the groups in a forked child, whose end would wait for the parent's threads."""
        for group in list(cls._all):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _is_simple(op: c_int32, tensor: Tensor) -> bool:
    """Return whether the library combines such tensors without further steps."""
    return op.value != capi.MV_OP_MEAN or tensor.is_floating_point()


@atexit.register
def _leave_groups() -> None:
    """Leave the groups that the program has not destroyed, before Python ends their threads."""
    for memory in list(_open):
        memory.leave("its program ended without destroying the process group")
    CallQueue.join_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Gloo.keep_all_in_child)
