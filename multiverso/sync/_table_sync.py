"""The tensors of one dtype and the table that they are kept equal to."""

import threading
import weakref
from collections.abc import Sequence
from ctypes import byref, c_int64, c_void_p
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays, capi, library
from multiverso._native.library import call, lib
from multiverso.sync._overlap import Snapshot
from multiverso.sync._tensor import Group, Tensor
from multiverso.tables import ArrayTableHandler

_run: Final = lib.MV_ParamSyncRun


class TablePart:
    """The tensors of one dtype, their table, and the native object between them."""

    def __init__(self, tensors: list[Tensor], table: ArrayTableHandler, overlap: bool) -> None:
        # With all workers at once, lest a slow one sees what a quick one has added already.
        values = table.get(sync=True)
        self._table = table
        self._sizes = [tensor.size for tensor in tensors]
        self._overlap = overlap
        self._start(values)
        end = 0
        for tensor in tensors:
            begin, end = end, end + tensor.size
            if tensor.size:
                tensor.assign(values[begin:end])
        self._tensors = tensors  # keeps their memory
        self._addresses = (c_void_p * len(tensors))()
        self._count = c_int64(len(tensors))
        for index, tensor in enumerate(tensors):
            if tensor.is_fixed:
                self._addresses[index] = tensor.address()
        self._runs = _runs_of(tensors)
        self._located: list[list[int]] = [[] for _ in self._runs]  # what `_addresses` has of each

    def _start(self, values: NDArray[Any]) -> None:
        """Make the native object, for tensors that are `values` now, or for a copy of them."""
        self._snapshot = Snapshot(values) if self._overlap else None
        self._resumes = False
        sizes = [values.size] if self._overlap else self._sizes
        self._handle = capi.MV_ParamSync()
        call(
            lib.MV_ParamSyncCreate,
            self._table._handle,
            (c_int64 * len(sizes))(*sizes),
            len(sizes),
            arrays.address(values),
            byref(self._handle),
        )
        # The copy of the handle outlives this object.
        handle = capi.MV_ParamSync(self._handle.value)
        self._free = weakref.finalize(self, lib.MV_ParamSyncFree, handle)
        self._free.atexit = False

    def restart(self) -> None:
        """Count the gains from what the tensors are now."""
        values = joined(self._tensors)
        for _, _, tensors in self._runs:
            for tensor in tensors:
                tensor.assign(tensor.values())
        self._free()
        self._start(values)

    def sync(self) -> None:
        """Make one pass over tensors and table."""
        self._locate()
        try:
            call(_run, self._handle, self._addresses, self._count)
        finally:  # an interrupted pass is whole in what it has done
            self._settle()

    def _locate(self) -> None:
        for run, (group, places, tensors) in enumerate(self._runs):
            addresses = None if group is None else group.addresses
            if addresses is None:
                addresses = [tensor.address() for tensor in tensors]
            if addresses != self._located[run]:
                self._located[run] = []  # lest an interrupt leaves some of these, some of those
                for place, address in zip(places, addresses, strict=True):
                    self._addresses[place] = address
                self._located[run] = addresses

    def _settle(self) -> None:
        for group, _, tensors in self._runs:
            if group is None or group.addresses is None:
                for tensor in tensors:
                    tensor.settle()

    def begin(self) -> None:
        """Let the next `exchange` begin with what the last `apply` has sent."""
        self._resumes = False

    def exchange(self, stop: threading.Event) -> None:
        """Make the pass over a copy of the tensors, in another thread."""
        assert self._snapshot is not None
        if not self._resumes:  # after one that failed the pass goes on with what is there
            self._snapshot.begin()
            self._resumes = True
        brought = self._snapshot.brought
        addresses = (c_void_p * 1)(arrays.address(brought))
        library.call_until(stop, _run, self._handle, addresses, c_int64(1))

    def apply(self, is_sent: bool) -> None:
        """Set the tensors to what has been brought and what they have gained meanwhile."""
        assert self._snapshot is not None
        self._locate()
        addresses = [int(address or 0) for address in self._addresses]
        self._snapshot.apply(addresses, self._sizes, is_sent)
        self._settle()


def _runs_of(tensors: Sequence[Tensor]) -> list[tuple[Group | None, list[int], list[Tensor]]]:
    """Return each group of those that may move, its tensors' places and these; then the others."""
    runs: dict[int, tuple[Group | None, list[int], list[Tensor]]] = {}
    for place, tensor in enumerate(tensors):
        if not tensor.is_fixed:
            group = getattr(tensor, "group", None)
            _, places, members = runs.setdefault(id(group), (group, [], []))
            places.append(place)
            members.append(tensor)
    return list(runs.values())


def joined(tensors: list[Tensor]) -> NDArray[Any]:
    if len(tensors) == 1:
        return tensors[0].values()
    return np.concatenate([tensor.values() for tensor in tensors])
