"""What all ways to keep a model's parameters in step are made of: tensors, tables, the native pass.

A `Tensor` is a piece of memory with parameters, seen the way one framework or another keeps them.
A `TensorSync` ties a list of them to tables, one for each dtype among them.
"""

import contextlib
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_int64, c_void_p
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from multiverso import _arrays, _capi, _session
from multiverso._capi import call, lib
from multiverso.errors import StateError
from multiverso.tables import ArrayTableHandler

#: So much of the user's name, in bytes, leaves room for the layout within a table's name.
_NAME_BYTES: Final = 24
_LAYOUT_BYTES: Final = 36

_run: Final = lib.MV_ParamSyncRun


class Tensor(Protocol):
    """Parameters in memory, of a fixed number of elements.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the table that they are kept in.
    shape : tuple of int
        Of the parameters, compared over the ranks.
    size : int
        How many elements they are.
    is_fixed : bool
        Whether the native pass works on the parameters themselves, which never move.

    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    is_fixed: bool

    def values(self) -> NDArray[Any]:
        """Return the parameters, flat and of `dtype`; a view or a copy."""

    def assign(self, values: NDArray[Any]) -> None:
        """Set the parameters to `values`, flat and of `dtype`: where they start from."""

    def address(self) -> int:
        """Return where they are now, C-contiguous and of `dtype`, for the native pass."""

    def settle(self) -> None:
        """Take note that the pass has changed what is at the address."""


class TensorSync:
    """Keeps tensors equal to tables. Collective: all ranks make one of the same tensors.

    The tables have the master's values, to which the tensors of all workers are set.

    Parameters
    ----------
    make : callable
        Returns the tensors. If it raises, the other ranks get a `MismatchError`.
    name : str or None
        What messages call it, "parameters" by default.
    updater : str, optional
        Of the tables, as for `ArrayTableHandler`.
    **options : float
        Of the updater.

    Raises
    ------
    ValueError
        If there are no tensors, or none has an element.
    TypeError, MismatchError, MemoryError, StateError
        As for `ArrayTableHandler`.
    OperationTimeout, PeerLostError, AbortedError
        As for `ArrayTableHandler`.

    """

    def __init__(
        self,
        make: Callable[[], Sequence[Tensor]],
        name: str | None,
        updater: str = "add",
        **options: float | None,
    ) -> None:
        session = _session.current()
        with taking_part():
            name = _checked_name(name)
            tensors = make()
            groups = _by_dtype(tensors)
            if not groups:
                msg = f"{name}: expected parameters, received {len(tensors)} tensors without any"
                raise ValueError(msg)
            full_name = _with_layout(name, tensors)
            is_master = session.worker_id == 0
            initial = [_joined(group) if is_master else None for group in groups]
        self.name = name
        self.tables: tuple[ArrayTableHandler, ...] = tuple(
            ArrayTableHandler(
                sum(tensor.size for tensor in group),
                init,
                dtype=group[0].dtype,
                updater=updater,
                name=full_name,
                **options,
            )
            for group, init in zip(groups, initial, strict=True)
        )
        del initial
        self._parts: list[_TablePart] | None = None
        if session.worker_id >= 0:
            self._parts = [
                _TablePart(group, table) for group, table in zip(groups, self.tables, strict=True)
            ]

    def sync(self) -> None:
        """Add what the tensors have gained to the tables, and set both to the sum."""
        if self._parts is None:
            msg = f"{self.name}: this rank is a server and no worker"
            raise StateError(msg)
        for part in self._parts:
            part.sync()


class _TablePart:
    """The tensors of one dtype, their table, and the native object between them."""

    def __init__(self, tensors: list[Tensor], table: ArrayTableHandler) -> None:
        # With all workers at once, lest a slow one sees what a quick one has added already.
        values = table.get(sync=True)
        counts = (c_int64 * len(tensors))(*(tensor.size for tensor in tensors))
        self._handle = _capi.MV_ParamSync()
        call(
            lib.MV_ParamSyncCreate,
            table._handle,
            counts,
            len(tensors),
            _arrays.address(values),
            byref(self._handle),
        )
        # The copy of the handle outlives this object.
        free = weakref.finalize(self, lib.MV_ParamSyncFree, _capi.MV_ParamSync(self._handle.value))
        free.atexit = False
        end = 0
        for tensor in tensors:
            begin, end = end, end + tensor.size
            if tensor.size:
                tensor.assign(values[begin:end])
        self._tensors = tensors  # keeps their memory
        self._addresses = (c_void_p * len(tensors))()
        self._count = c_int64(len(tensors))
        self._moving = []
        for index, tensor in enumerate(tensors):
            if tensor.is_fixed:
                self._addresses[index] = tensor.address()
            else:
                self._moving.append((index, tensor))

    def sync(self) -> None:
        """Make one pass over tensors and table."""
        for index, tensor in self._moving:
            self._addresses[index] = tensor.address()
        try:
            call(_run, self._handle, self._addresses, self._count)
        finally:  # an interrupted pass is whole in what it has done
            for _, tensor in self._moving:
                tensor.settle()


@contextlib.contextmanager
def taking_part() -> Iterator[None]:
    """Tell the other ranks, who wait for this one to create its table, if it fails before that."""
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):
            ArrayTableHandler(0)  # no table: the others get a MismatchError
        raise


def _checked_name(name: object) -> str:
    if name is None:
        return "parameters"
    if not isinstance(name, str):
        msg = f"name: expected a str, received {name!r}"
        raise TypeError(msg)
    return name


def _by_dtype(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors of each dtype that has elements, in the order of the first of each."""
    groups: dict[np.dtype[Any], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return [group for group in groups.values() if any(tensor.size for tensor in group)]


def _with_layout(name: str, tensors: Sequence[Tensor]) -> str:
    """Return a name for the tables that differs where the ranks' tensors do.

    The sizes of the tables alone would not tell a model of 2 + 3 parameters from one of 3 + 2, nor
    a matrix from its transpose.
    """
    short = name.encode()[:_NAME_BYTES].decode(errors="ignore")
    if len(tensors) == 1:
        shape = f"shape {tensors[0].shape}"
        if len(shape) <= _LAYOUT_BYTES:
            return f"{short}, {shape}"
    layout = ",".join(f"{tensor.dtype}{tensor.shape}" for tensor in tensors)
    return f"{short} ({len(tensors)} tensors, layout {zlib.crc32(layout.encode()):08x})"


def _joined(tensors: list[Tensor]) -> NDArray[Any]:
    if len(tensors) == 1:
        return tensors[0].values()
    return np.concatenate([tensor.values() for tensor in tensors])
