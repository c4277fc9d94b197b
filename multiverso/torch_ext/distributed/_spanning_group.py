"""A process group of torch.distributed whose ranks are on several hosts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import ReduceOp

from multiverso.torch_ext.distributed import _plans as plans
from multiverso.torch_ext.distributed._base import Group, is_sync, only, only_list, op_of, options
from multiverso.torch_ext.distributed._rendezvous import Host
from multiverso.torch_ext.distributed._spanning import Hosts
from multiverso.torch_ext.distributed._work import FutureThread, ThreadWork, Work

_Tensor = torch.Tensor


class SpanningGroup(Group):
    """A group of ranks on several hosts.

    Calls that combine tensors run in shared memory inside a host, and between the hosts' first
    ranks. Calls that only copy are those of gloo.
    """

    def __init__(
        self,
        store: distributed.Store,
        rank: int,
        ranks: list[int],
        hosts: list[Host],
        timeout: timedelta,
    ) -> None:
        super().__init__(store, rank, ranks, hosts, timeout)
        self._hosts = Hosts(hosts, rank, self._memory, store, timeout)
        self._calls = FutureThread()

    def shutdown(self) -> None:
        """Wait for the calls of this rank, and leave the group. Not collective."""
        self._calls.end()
        super().shutdown()

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Combine a tensor over the ranks, in place."""
        tensor = only(tensors)
        if not plans.can_use(tensor):
            return self._gloo.allreduce([tensor], options(distributed.AllreduceOptions, opts))
        return self.allreduce_coalesced([tensor], opts)

    def allreduce_coalesced(self, tensors: Sequence[_Tensor], opts: Any = None) -> Any:
        """Combine several tensors over the ranks, in place."""
        return self._combine(tensors, list(tensors), [], opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Combine the tensors that the ranks have for this one."""
        output, parts = only(outputs), only_list(inputs)
        self._require_ranks("input", parts)
        whole = torch.cat([part.flatten() for part in parts])
        mine = whole.split([part.numel() for part in parts])[self.rank()]
        finish = [lambda: output.copy_(mine.view_as(output))]
        return self._combine([whole], [output], finish, opts)

    def reduce_scatter_single(self, output: _Tensor, tensor: _Tensor, opts: Any = None) -> Any:
        """Combine the parts that the tensors of all ranks have for this one."""
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[_Tensor], inputs: Sequence[_Tensor], opts: Any = None
    ) -> Any:
        """Do so with several tensors."""
        wholes, finish = [], []
        for output, tensor in zip(outputs, inputs, strict=True):
            plans.require_size("input", tensor, output.numel() * self.size())
            whole = tensor.detach().clone(memory_format=torch.contiguous_format)
            mine = whole.flatten().split(output.numel())[self.rank()] if output.numel() else output
            finish.append(functools.partial(output.copy_, mine.view_as(output)))
            wholes.append(whole)
        return self._combine(wholes, outputs, finish, opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        return self._combine([torch.zeros(1, dtype=torch.int32)], [], [], opts)

    def _combine(
        self,
        tensors: Sequence[_Tensor],
        result: Sequence[_Tensor],
        finish: list[Callable[[], object]],
        opts: Any,
    ) -> Work:
        """Let the thread of calls combine tensors, which are contiguous or copied back."""
        op = op_of(opts)
        op = ReduceOp.SUM if isinstance(opts, distributed.BarrierOptions) else op
        wholes = []
        for tensor in tensors:
            plans.require_op(op, tensor.dtype)
            whole, copies = plans.writable(tensor, keeps=True)
            wholes.append(whole)
            finish = [*copies, *finish]

        def run() -> None:
            try:
                for whole in wholes:
                    self._hosts.combine(whole, op)
            except RuntimeError as error:  # Of gloo. The ranks of this host wait for their leader.
                self._memory.leave(f"its exchange with other hosts failed: {error}")
                msg = f"the exchange between hosts failed ({self._words}): {error}"
                raise distributed.DistBackendError(msg) from error
            for step in finish:
                step()

        work = ThreadWork(run, list(result), self._errors, self._thread)
        self._calls.put(work.run)
        if is_sync(opts):
            work.wait()
        return work
