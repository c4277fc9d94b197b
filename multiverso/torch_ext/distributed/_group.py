"""A process group of torch.distributed whose ranks share the memory of a machine."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from ctypes import c_int32
from datetime import timedelta
from typing import Any, Final

import torch
from torch import Tensor, distributed

from multiverso._native import capi
from multiverso.torch_ext.distributed import _calls, _plans as plans
from multiverso.torch_ext.distributed._arguments import is_sync, only, only_list, op_of, options
from multiverso.torch_ext.distributed._calls import SharedMemory
from multiverso.torch_ext.distributed._queue import CallQueue
from multiverso.torch_ext.distributed._threads import OrderedThread
from multiverso.torch_ext.distributed._work import ErrorsOfPyTorch, Received, Work, untraced

# The keys are the operations' numbers, because PyTorch takes long to hash an operation.
_OP_ARGUMENTS: Final = {int(op): c_int32(code) for op, code in _calls.OPS.items()}
_DTYPE_ARGUMENTS: Final = {dtype: c_int32(code) for dtype, code in _calls.DTYPES.items()}

#: The memory of the groups of this process that it has not left.
_open: Final[weakref.WeakSet[SharedMemory]] = weakref.WeakSet()


@untraced
class MultiversoGroup(distributed.ProcessGroup):  # type: ignore[misc]  # PyTorch has no types.
    """A group of ranks that share memory.

    Sums, copies and barriers are calls of a session of these ranks. PyTorch sends what this class
    does not define to a group of gloo inside, which connects two ranks when they first need it.
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
        self._queue = CallQueue("multiverso-calls")
        self._seconds = timeout.total_seconds()
        self._gloo = _lazy_gloo(store, rank, len(ranks), timeout)
        self._register_backend(
            torch.device("cpu"), distributed.ProcessGroup.BackendType.GLOO, self._gloo
        )

    def getBackendName(self) -> str:  # noqa: N802 (a name of PyTorch)
        """Return the name of the backend."""
        return "multiverso"

    def shutdown(self) -> None:
        """Wait for the calls of this rank, and leave the group. Not collective."""
        self._queue.drain(self._seconds)
        self._leave("its process group was destroyed")

    def abort(self) -> None:
        """Leave the group at once. Calls in flight fail, also on the other ranks."""
        self._leave("its process group was aborted")

    def _leave(self, reason: str) -> None:
        self._queue.require_no_call()
        self._queue.end(reason)
        self._memory.leave(reason)
        _open.discard(self._memory)

    def _require_ranks(self, what: str, tensors: Sequence[object]) -> None:
        if len(tensors) != self.size():
            msg = f"{what}: expected {self.size()} tensors, received {len(tensors)}"
            raise ValueError(msg)

    # ---- Collectives, with the signatures of PyTorch

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Combine a tensor over the ranks, in place."""
        tensor = only(tensors)
        if not _calls.can_use(tensor):
            return self._gloo.allreduce([tensor], options(distributed.AllreduceOptions, opts))
        op = op_of(opts)
        if is_sync(opts) and plans.is_dense(tensor):
            # Each look at an operation of PyTorch takes as long as half a sum of a small tensor.
            code, dtype = _OP_ARGUMENTS.get(int(op)), _DTYPE_ARGUMENTS.get(tensor.dtype)
            if code is not None and dtype is not None and _is_simple(code, tensor):
                with self._errors:
                    self._queue.run(lambda: self._memory.aggregate(code, dtype, tensor))
                return self._ended([tensor])
        return self._make([plans.reduction(tensor, self.size(), op)], [tensor], opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        """Combine several tensors over the ranks, in place."""
        op, ranks = op_of(opts), self.size()
        return self._make([plans.reduction(t, ranks, op) for t in tensors], tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Combine a tensor over the ranks, on one of them."""
        tensor, root = only(tensors), getattr(opts, "rootRank", 0)
        made = plans.reduction_to_one(tensor, root, self.rank(), self.size(), op_of(opts))
        return self._make([made], [tensor], opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy a tensor of one rank to the others."""
        tensor = only(tensors)
        if not _calls.can_use(tensor):
            return self._gloo.broadcast([tensor], options(distributed.BroadcastOptions, opts))
        root = opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)
        return self._make([plans.broadcast(tensor, root)], [tensor], opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy the tensors of all ranks to a list."""
        tensor, output = only(inputs), only_list(outputs)
        if not _calls.can_use(tensor):
            return self._gloo.allgather(
                [output], [tensor], options(distributed.AllgatherOptions, opts)
            )
        self._require_ranks("output", output)
        return self._make([plans.gather(output, tensor)], output, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy the tensors of all ranks to a list on one of them."""
        tensor, output = only(inputs), only_list(outputs) if outputs else []
        if output:
            self._require_ranks("output", output)
        made = plans.to_one(output, tensor, getattr(opts, "rootRank", 0), self.size())
        return self._make([made], output, opts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy a tensor of a list that one rank has to each rank."""
        output, parts = only(outputs), only_list(inputs) if inputs else []
        if parts:
            self._require_ranks("input", parts)
        made = plans.from_one(output, parts, getattr(opts, "rootRank", 0), self.size())
        return self._make([made], [output], opts)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Copy several tensors of all ranks; ``outputs[rank]`` has those of one rank."""
        self._require_ranks("output", outputs)
        made = [plans.gather([of[i] for of in outputs], t) for i, t in enumerate(inputs)]
        return self._make(made, [tensor for of in outputs for tensor in of], opts)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        """Copy the tensors of all ranks to the parts of one."""
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Do so with several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        made = [plans.gather_into(output, t, self.size()) for output, t in pairs]
        return self._make(made, outputs, opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Combine the tensors that the ranks have for this one."""
        output, parts = only(outputs), only_list(inputs)
        self._require_ranks("input", parts)
        return self._make([plans.scatter(output, parts, op_of(opts))], [output], opts)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        """Combine the parts that the tensors of all ranks have for this one."""
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Do so with several tensors."""
        pairs, op = zip(outputs, inputs, strict=True), op_of(opts)
        made = [plans.scatter_from(output, t, self.size(), op) for output, t in pairs]
        return self._make(made, outputs, opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Send a tensor to each rank, and receive one from each."""
        self._require_ranks("output", outputs)
        self._require_ranks("input", inputs)
        return self._make([plans.exchange(outputs, inputs)], outputs, opts)

    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_rows: Sequence[int] = (),
        input_rows: Sequence[int] = (),
        opts: Any = None,
    ) -> Any:
        """Send rows of a tensor to each rank, and receive rows from each."""
        made = plans.exchange_rows(output, tensor, self.size(), output_rows, input_rows)
        return self._make([made], [output], opts)

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        return self._make([plans.barrier()], [], opts)

    # ---- Between two ranks, through gloo

    def send(self, tensors: Any, rank: int, tag: int = 0) -> Any:
        """Send a tensor to a rank."""
        return self._gloo.send([plans.dense(only(tensors))], rank, tag)

    def recv(self, tensors: Any, rank: int, tag: int = 0) -> Any:
        """Receive a tensor from a rank."""
        whole, finish = plans.writable(only(tensors))
        return Received.when_copied(self._gloo.recv([whole], rank, tag), finish)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive a tensor from any rank."""
        whole, finish = plans.writable(only(tensors))
        return Received.when_copied(self._gloo.recv_anysource([whole], tag), finish)

    # ---- How a call is made

    def _make(self, made: list[plans.Plan], result: Sequence[Tensor], opts: Any) -> Work:
        """Make the calls, at once if the caller waits for them, else in the background."""
        with self._errors:
            if not is_sync(opts):
                return Work(list(result), self._queue, self._errors, lambda: self._run(made))
            self._queue.run(lambda: self._run(made))
        return self._ended(result)

    def _run(self, made: list[plans.Plan]) -> None:
        for plan in made:
            self._memory.run(plan.call)
        # The caller may be in no_grad or inference_mode, which are modes of its thread.
        with torch.inference_mode():
            for plan in made:
                for step in plan.finish:
                    step()

    def _ended(self, result: Sequence[Tensor]) -> Work:
        return Work(list(result), self._queue, self._errors)


def _is_simple(op: c_int32, tensor: Tensor) -> bool:
    """Return whether the library combines such tensors without further steps."""
    return op.value != capi.MV_OP_MEAN or tensor.is_floating_point()


@atexit.register
def _leave_groups() -> None:
    """Leave the groups that the program has not destroyed, before Python ends their threads."""
    for memory in list(_open):
        memory.leave("its program ended without destroying the process group")
    OrderedThread.join_all()


def _lazy_gloo(store: distributed.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a group of gloo that connects two ranks when they first need it."""
    gloo = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_default_device(lazy_init=True)]
    options._timeout = timeout
    return gloo(distributed.PrefixStore("gloo", store), rank, size, options)
