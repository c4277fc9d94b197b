"""What all ways to keep a model's parameters in step are made of: tensors, tables, the native pass.

A `Tensor` is a piece of memory with parameters, seen the way one framework or another keeps them.
A `TensorSync` ties a list of them to tables, one for each dtype among them.
"""

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from multiverso import _session
from multiverso._native import arrays
from multiverso.errors import StateError
from multiverso.sync._overlap import Exchange
from multiverso.sync._table_sync import TablePart, joined
from multiverso.sync._tensor import Group, Tensor
from multiverso.tables import ArrayTableHandler

#: So much of the user's name, in bytes, leaves room for the layout within a table's name.
_NAME_BYTES: Final = 24
_LAYOUT_BYTES: Final = 36


class TensorSync:
    """Keeps tensors equal to tables. Collective: all ranks make one of the same tensors.

    The tables have the master's values, to which the tensors of all workers are set.

    Parameters
    ----------
    make : callable
        Returns the tensors. If it raises, the other ranks get a `MismatchError`.
    name : str or None
        What messages call it, "parameters" by default.
    overlap : bool, optional
        Whether a thread exchanges what a sync has found, see `_overlap`.
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
        overlap: bool = False,
        updater: str = "add",
        **options: float | None,
    ) -> None:
        session = _session.current()
        with taking_part():
            name = _checked_name(name)
            _check_flag(overlap)
            tensors = make()
            self._groups: list[Group] = _groups_of(tensors)
            for group in self._groups:
                group.load()
            self._tensors = tensors
            parts = _by_dtype(tensors)
            if not parts:
                msg = f"{name}: expected parameters, received {len(tensors)} tensors without any"
                raise ValueError(msg)
            full_name = _with_layout(name, tensors)
            is_master = session.worker_id == 0
            initial = [joined(part) if is_master else None for part in parts]
        self.name = name
        self._session = session
        self.tables: tuple[ArrayTableHandler, ...] = tuple(
            ArrayTableHandler(
                sum(tensor.size for tensor in part),
                init,
                dtype=part[0].dtype,
                updater=updater,
                name=full_name,
                **options,
            )
            for part, init in zip(parts, initial, strict=True)
        )
        del initial
        self._parts: list[TablePart] | None = None
        if session.worker_id >= 0:
            self._parts = [
                TablePart(part, table, overlap)
                for part, table in zip(parts, self.tables, strict=True)
            ]
            for group in self._groups:
                group.scatter()
        self._exchange: Exchange | None = None
        if overlap and self._parts is not None:
            self._exchange = Exchange(_passes(self._parts), name)

    def sync(self) -> None:
        """Add what the tensors have gained to the tables, and set both to the sum."""
        parts = self._checked_parts()
        if self._session.options.is_checked:
            self._require_finite()
        if self._exchange is not None:
            if self._session.closed:
                msg = f"{self.name}: the session in which it was made has been shut down"
                raise StateError(msg)
            self._wait_for(self._exchange)
            self._apply(parts, is_sent=True)
            for part in parts:
                part.begin()
            self._exchange.start()
            return
        for group in self._groups:
            group.gather()
        try:
            for part in parts:
                part.sync()
        finally:
            for group in self._groups:
                group.scatter()

    def wait(self) -> None:
        """Wait for what the last sync exchanges in the background, and set the tensors to it."""
        parts = self._checked_parts()
        if self._exchange is not None:
            self._wait_for(self._exchange)
            self._apply(parts, is_sent=False)

    def _wait_for(self, exchange: Exchange) -> None:
        exchange.wait()
        if (error := exchange.take_error()) is not None:
            # Whoever goes on nevertheless makes the same pass again first: it does the rest.
            exchange.start()
            raise error

    def _apply(self, parts: "list[TablePart]", is_sent: bool) -> None:
        for group in self._groups:
            group.gather()
        for part in parts:
            part.apply(is_sent)
        for group in self._groups:
            group.scatter()

    def restart(self) -> None:
        """Count the gains from what the tensors are now; what made them so is not added."""
        self.wait()
        parts = self._checked_parts()
        for group in self._groups:
            group.load()
        for part in parts:
            part.restart()

    def _require_finite(self) -> None:
        """Raise ValueError if a tensor is not finite, before anything has moved."""
        now = {
            id(tensor): values
            for group in self._groups
            for tensor, values in zip(group.tensors, group.values(), strict=True)
        }
        for number, tensor in enumerate(self._tensors):
            values = now[id(tensor)] if id(tensor) in now else tensor.values()
            shaped = values.reshape(tensor.shape)
            arrays.require_finite(shaped, f"{self.name}, tensor {number}")

    def _checked_parts(self) -> "list[TablePart]":
        if self._parts is None:
            msg = f"{self.name}: this rank is a server and no worker"
            raise StateError(msg)
        return self._parts


def _passes(parts: list[TablePart]) -> Callable[[threading.Event], None]:
    """Return what makes the passes of all tables."""

    def run(stop: threading.Event) -> None:
        for part in parts:
            part.exchange(stop)

    return run


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


def _check_flag(overlap: object) -> None:
    if not isinstance(overlap, bool):
        msg = f"overlap: expected True or False, received {overlap!r}"
        raise TypeError(msg)


def _by_dtype(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors of each dtype that has elements, in the order of the first of each."""
    groups: dict[np.dtype[Any], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return [group for group in groups.values() if any(tensor.size for tensor in group)]


def _groups_of(tensors: Sequence[Tensor]) -> list[Group]:
    """Return the groups of those tensors that have one, each once."""
    groups = [group for tensor in tensors if (group := getattr(tensor, "group", None)) is not None]
    return list({id(group): group for group in groups}.values())


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
