"""The synchronization of the tensors of one dtype with a table, by the native pass.

The native pass is a call of `MV_ParamSyncRun`, which adds the deltas of all tensors to the table
and writes the new values to the tensors, in one pass over the memory.
"""

from collections.abc import Sequence
from ctypes import byref, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays, capi
from multiverso._native.library import checked
from multiverso.sync._tensor import Tensor, TensorGroup
from multiverso.tables import ArrayTable


class TableSync:
    """Keeps tensors of one dtype in sync with a table, whose values they first get. Collective."""

    def __init__(self, tensors: list[Tensor], table: ArrayTable) -> None:
        # The get is collective, so that no worker starts from values with another's updates.
        values = table.get(sync=True)
        self._table = table
        self._tensors = tensors
        self._sizes = [tensor.size for tensor in tensors]
        self._create(values)
        end = 0
        for tensor in tensors:
            begin, end = end, end + tensor.size
            if tensor.size:
                tensor.assign(values[begin:end])
        self._addresses = (c_void_p * len(tensors))()
        self._count = c_int64(len(tensors))
        for index, tensor in enumerate(tensors):
            if tensor.is_fixed:
                self._addresses[index] = tensor.address()
        self._movable = _movable_by_group(tensors)
        # The places of each entry's tensors in their group, of which other fragments may have some.
        self._places = [_places(group, tensors) for group, _, tensors in self._movable]
        # The addresses in `_addresses` for each entry of `_movable`, with which `_locate` checks
        # whether it must update `_addresses`.
        self._located: list[list[int]] = [[] for _ in self._movable]

    def _create(self, values: NDArray[Any]) -> None:
        """Create the native object, which measures the deltas of the tensors from `values`."""
        self._create_native(values, self._sizes)

    def _create_native(self, values: NDArray[Any], sizes: list[int]) -> None:
        handle = capi.MV_ParamSync()
        checked.MV_ParamSyncCreate(
            self._table._handle,
            (c_int64 * len(sizes))(*sizes),
            len(sizes),
            arrays.address(values),
            byref(handle),
        )
        self._handle = handle  # in place of an earlier one, which ends with that

    def restart(self) -> None:
        """Measure the deltas from the current values of the tensors."""
        values = joined(self._tensors)
        for _, _, tensors in self._movable:
            for tensor in tensors:
                tensor.assign(tensor.values())
        self._create(values)

    def sync(self) -> None:
        """Add the deltas to the table and set the tensors to its values, in one native pass."""
        self._locate()
        try:
            checked.MV_ParamSyncRun(self._handle, self._addresses, self._count)
            self._settle()
        except BaseException:
            # An interrupted pass leaves complete values in the elements that the pass has changed.
            # Settling can itself have been interrupted; a second time it gives the same result.
            self._settle()
            raise

    def _locate(self) -> None:
        """Update `_addresses` for the tensors that may have moved."""
        for entry, (group, indices, tensors) in enumerate(self._movable):
            if group is None or group.addresses is None:
                addresses = [tensor.address() for tensor in tensors]
            else:
                addresses = [group.addresses[place] for place in self._places[entry]]
            if addresses != self._located[entry]:
                self._located[entry] = []  # An interrupt in the loop leaves a mixture.
                for index, address in zip(indices, addresses, strict=True):
                    self._addresses[index] = address
                self._located[entry] = addresses

    def _settle(self) -> None:
        for group, _, tensors in self._movable:
            if group is None or group.addresses is None:
                for tensor in tensors:
                    tensor.settle()

    @property
    def is_float(self) -> bool:
        """Whether the tensors are of floating-point numbers."""
        return self._table.value_dtype.kind == "f"

    def scale(self, factor: float) -> None:
        """Multiply the deltas of the next exchanges by a factor."""
        checked.MV_ParamSyncSetScale(self._handle, factor)


def _places(group: TensorGroup | None, tensors: Sequence[Tensor]) -> list[int]:
    places = {} if group is None else {id(t): place for place, t in enumerate(group.tensors)}
    return [places[id(tensor)] for tensor in tensors] if places else []


def _movable_by_group(
    tensors: Sequence[Tensor],
) -> list[tuple[TensorGroup | None, list[int], list[Tensor]]]:
    """Return the tensors that are not fixed, with their indices, by group or None if ungrouped."""
    groups: dict[int, tuple[TensorGroup | None, list[int], list[Tensor]]] = {}
    for index, tensor in enumerate(tensors):
        if not tensor.is_fixed:
            _, indices, members = groups.setdefault(id(tensor.group), (tensor.group, [], []))
            indices.append(index)
            members.append(tensor)
    return list(groups.values())


def joined(tensors: list[Tensor]) -> NDArray[Any]:
    """Return the values of all tensors in one dimension, without a copy if there is one tensor."""
    if len(tensors) == 1:
        return tensors[0].values()
    return np.concatenate([tensor.values() for tensor in tensors])
