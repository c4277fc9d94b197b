"""What the groups of this backend have in common, and the arguments that PyTorch passes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import ReduceOp

from multiverso.torch_ext.distributed._calls import SharedMemory
from multiverso.torch_ext.distributed._rendezvous import Host
from multiverso.torch_ext.distributed._work import ErrorsOfPyTorch, FutureThread


class Group(distributed.ProcessGroup):
    """What all groups have in common.

    PyTorch sends what a class does not define to a group of gloo inside, which connects two ranks
    when they first need it.
    """

    def __init__(
        self,
        store: distributed.Store,
        rank: int,
        ranks: list[int],
        hosts: list[Host],
        timeout: timedelta,
    ) -> None:
        super().__init__(rank, len(ranks))
        self._words = f"ranks {ranks}"
        self._errors = ErrorsOfPyTorch(self._words)
        here = next(host for host in hosts if rank in host.ranks)
        self._memory = SharedMemory(here, rank, timeout)
        self._thread = FutureThread()
        self._gloo = _lazy_gloo(store, rank, len(ranks), timeout)
        self._register_backend(
            torch.device("cpu"), distributed.ProcessGroup.BackendType.GLOO, self._gloo
        )

    def getBackendName(self) -> str:  # noqa: N802 (a name of PyTorch)
        """Return the name of the backend."""
        return "multiverso"

    def shutdown(self) -> None:
        """Wait for the calls of this rank, and leave the group. Not collective."""
        self._memory.close()
        self._thread.end()

    def abort(self) -> None:
        """Leave the group at once. Calls in flight fail, also on the other ranks."""
        self._memory.leave("its process group was aborted")
        self._thread.end()

    def _require_ranks(self, what: str, tensors: Sequence[object]) -> None:
        if len(tensors) != self.size():
            msg = f"{what}: expected {self.size()} tensors, received {len(tensors)}"
            raise ValueError(msg)


def only(tensors: Any) -> torch.Tensor:
    """Return the tensor of a call on one tensor, which PyTorch passes in a list."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        msg = f"expected one tensor, received {len(tensors)}"
        raise ValueError(msg)
    return tensors[0]


def only_list(lists: Any) -> list[torch.Tensor]:
    """Return the list of a call on one list of tensors, which may be in another list."""
    if isinstance(lists[0], torch.Tensor):
        return list(lists)
    return list(only(lists))


def op_of(opts: Any) -> Any:
    """Return the operation of a call, whose options are those of PyTorch, or an operation."""
    op = getattr(opts, "reduceOp", opts)
    if op is None:
        return ReduceOp.SUM
    return getattr(op, "op", op)


def is_sync(opts: Any) -> bool:
    """Return whether the caller waits for a call. PyTorch's own code in C++ does not say so."""
    return not getattr(opts, "asyncOp", True)


def options(kind: Any, opts: Any) -> Any:
    """Return the options of a call, or the defaults if there are none."""
    return opts if isinstance(opts, kind) else kind()


def _lazy_gloo(store: distributed.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a group of gloo that connects two ranks when they first need it.

    Otherwise the first call between two ranks would wait for all others.
    """
    gloo = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_default_device(lazy_init=True)]
    options._timeout = timeout
    return gloo(distributed.PrefixStore("gloo", store), rank, size, options)
