"""Keeps a list of tensors in sync with a table for each dtype, for `ParamSync` and all adapters.

A `Tensor` is an array of parameters in the form in which NumPy or a framework keeps it.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from multiverso import _session
from multiverso._native import arrays, supported
from multiverso._session import leaving
from multiverso.errors import StateError
from multiverso.sync._layout import TablePart, groups_of, tables_of
from multiverso.sync._options import SyncOptions
from multiverso.sync._overlap import OverlappedTableSync
from multiverso.sync._table_sync import TableSync, joined
from multiverso.sync._tensor import Tensor, TensorGroup, Tensors
from multiverso.sync._weighted_merge import WeightedMerge
from multiverso.tables import ArrayTable
from multiverso.tables._array_table import ExchangeTable

_Sync = TypeVar("_Sync", bound=TableSync)


class TensorSync:
    """Keeps tensors in sync with a table for each dtype.

    The constructor is collective: all ranks pass tensors of the same shapes. The tables and the
    tensors of all workers start with the master's values.

    `make_tensors` returns the tensors, perhaps as `Tensors`; if it raises, other ranks get a
    `MismatchError`. `name` is that in messages, "parameters" by default. Integers are not averaged:
    their tensors have the master's share.
    """

    def __init__(
        self,
        make_tensors: Callable[[], Sequence[Tensor]],
        name: str | None,
        given: SyncOptions,
        of_updater: dict[str, Any],
    ) -> None:
        self._session = _session.current()
        with failing_on_all_ranks():
            self.name = name = _checked_name(name)
            self._given = given = given.checked(of_updater)
            by_fragment = self._divide(make_tensors())
            parts = [part for fragment in by_fragment for part in fragment]
            is_master = self._session.may_be_master
            initial = [joined(part.tensors) if is_master else None for part in parts]
        self._divides = given.average and self._session.options.elastic
        self.tables: tuple[ArrayTable, ...] = tuple(
            self._table_of(part, values, of_updater)
            for part, values in zip(parts, initial, strict=True)
        )
        del initial
        self._merge = None if given.weight is None else WeightedMerge(given.weight, name)
        self._fragments: list[list[TableSync]] | None = None
        if self._session.worker_id >= 0:
            rest = iter(self.tables)
            self._fragments = [
                [self._table_sync(part.tensors, next(rest)) for part in fragment]
                for fragment in by_fragment
            ]
            self._scatter()
        self._steps = 0  # Since all fragments were synchronized.
        self.asks_to_leave = True  # Whether `step` does so.
        self.has_tensors = True  # Whether they are the program's own, and not copies.
        self._successor: str | None = None
        self._replace_earlier()
        self._session.departure.add_last_call(self._complete)

    def _divide(self, tensors: Sequence[Tensor]) -> list[list[TablePart]]:
        """Load the tensors; return the parts of each fragment that have tables of their own."""
        self._tensors = tensors if isinstance(tensors, Tensors) else Tensors(tensors)
        self._groups: list[TensorGroup] = groups_of(tensors)
        for group in self._groups:
            group.load()
        if not any(tensor.size for tensor in tensors):
            given = "tensors without elements" if tensors else "none"
            raise ValueError(f"{self.name}: expected parameters, received {given}")
        by_fragment = tables_of(self.name, tensors, self._given.fragments)
        if {part.dtype.kind for fragment in by_fragment for part in fragment} != {"f"}:
            supported.check("integers", *(self._given.features() & {"weight"}))
        return by_fragment

    def _table_of(
        self, part: TablePart, values: NDArray[Any] | None, of_updater: dict[str, Any]
    ) -> ArrayTable:
        averages = self._given.average and part.dtype.kind == "f"
        # The delta is sent as the gradient last - current, so sgd with this rate adds the mean. In
        # an elastic session, each sync divides by the current number of workers instead.
        rate = 1.0 if self._divides else 1 / self._session.num_workers
        table = ExchangeTable(
            sum(tensor.size for tensor in part.tensors),
            values,
            dtype=part.dtype,
            updater="sgd" if averages else self._given.updater,
            name=part.name,
            wire=self._given.wire if part.dtype == np.float32 else None,
            **({"learning_rate": rate} if averages else of_updater),
        )
        if averages:  # A checkpoint has the rate of the job that wrote it.
            self._session.fixed_options[table] = {"learning_rate": rate}
        return table

    def _table_sync(self, tensors: list[Tensor], table: ArrayTable) -> TableSync:
        if not self._given.overlaps:
            return TableSync(tensors, table)
        alpha = self._given.fragment_update_alpha if self._given.merges else None
        return OverlappedTableSync(tensors, table, alpha)

    def _replace_earlier(self) -> None:
        """Let earlier syncs of the same parameters raise an error: both would add the deltas."""
        mine = set(map(id, self._tensors.sources()))
        references = self._session.companions.setdefault(__name__, [])
        earlier = [sync for reference in references if (sync := reference()) is not None]
        for sync in earlier:
            if not mine.isdisjoint(map(id, sync._tensors.sources())):
                sync._successor = self.name
        references[:] = map(weakref.ref, [*earlier, self])

    @property
    def num_workers(self) -> int:
        """The number of workers of the session."""
        return self._session.num_workers

    def is_live(self) -> bool:
        """Return whether the session is still open."""
        return not self._session.closed

    def step(self, steps: int = 1) -> None:
        """Count steps of training, and sync the fragments that are due.

        In `sync_every` steps, each fragment is due once, at equal distances. With a delay, its
        exchange begins as many steps before.
        """
        fragments = self._require_fragments()
        first = self._steps
        self._steps += steps
        if not self._given.merges:
            if due := self._due(first, self._steps):
                self._sync([sync for index in due for sync in fragments[index]])
        else:
            for step in range(first, self._steps):
                begun = step + self._given.fragment_sync_delay
                if due := self._due(begun, begun + 1):
                    self._begin([sync for index in due for sync in fragments[index]])
                if self._due(step, step + 1):
                    self.wait()
        if self.asks_to_leave:
            self.check_leaving()

    def check_leaving(self) -> None:
        """End this rank if it is to leave; see `multiverso.check_leaving`."""
        leaving.check_after_sync(self._session)

    def _complete(self) -> None:
        """Add the deltas since the last sync, before this rank leaves."""
        if self._fragments is not None and self._successor is None and self.has_tensors:
            self.sync()
            self.wait()

    def _due(self, first: int, end: int) -> list[int]:
        """Return the fragments that are due after step `first` and up to step `end`."""
        count, every = len(self._require_fragments()), self._given.sync_every
        turns = range(first * count // every, end * count // every)
        return sorted({turn % count for turn in turns})

    def restart_steps(self) -> None:
        """Count the steps until the next sync from here."""
        self._steps = 0

    def sync(self) -> None:
        """Add the deltas of the tensors to the tables, and set the tensors to the new values."""
        fragments = self._require_fragments()
        self.restart_steps()
        self._sync([sync for fragment in fragments for sync in fragment])

    def _sync(self, syncs: list[TableSync]) -> None:
        if self._given.overlaps:
            self._begin(syncs)
            if self._given.merges:
                self.wait()
            return
        self._prepare()
        self._scale(syncs)
        self._pass(syncs, TableSync.sync)

    def _pass(self, syncs: Sequence[_Sync], run: Callable[[_Sync], None]) -> None:
        """Call a function that changes tensors, and give their groups the result."""
        for group in self._groups:
            group.gather()
        try:
            for sync in syncs:
                run(sync)
            self._scatter()
        except BaseException:  # perhaps of an interrupt while the groups got a part of the result
            self._scatter()
            raise

    def _scatter(self) -> None:
        for group in self._groups:
            group.scatter()

    def _follow(self) -> None:
        """Let the tensors follow the model, unless a later sync has some of its parameters."""
        if self._successor is not None:
            raise StateError(
                f"{self.name}: expected parameters of its own, but '{self._successor}', "
                "which was made later, has some of them; use the later one, or give each its own"
            )
        self._tensors.follow()

    def _prepare(self) -> None:
        self._follow()
        if self._session.options.requires_finite:
            self._require_finite()

    def _begin(self, due: list[TableSync]) -> None:
        """Complete the exchange of the last sync, and begin that of `due`."""
        syncs = [sync for sync in due if isinstance(sync, OverlappedTableSync)]  # All are.
        self._prepare()
        if self._session.closed:
            raise StateError(f"{self.name}: the session in which it was made has been shut down")
        self._await_exchange()
        merges = self._given.merges
        if others := [sync for sync in self._exchanging() if merges or sync not in syncs]:
            self._pass(others, OverlappedTableSync.merge)
        self._scale(syncs)
        self._pass(syncs, OverlappedTableSync.merge_and_take)
        for sync in syncs:
            sync.begin()
        for sync in syncs:  # If this fails for one, `wait` starts the others.
            sync.start()

    def wait(self) -> None:
        """Wait for the exchange of the last sync, and apply its result to the tensors."""
        self._require_fragments()
        if self._given.overlaps:
            self._follow()
            self._await_exchange()
            self._pass(self._exchanging(), OverlappedTableSync.merge)

    def _scale(self, syncs: Sequence[TableSync]) -> None:
        if self._merge is None and not self._divides:
            return
        scale = 1.0 if self._merge is None else self._merge.next_scale()
        if self._divides:
            scale /= self._session.num_workers
        for sync in syncs:
            if sync.is_float:  # Integers are neither weighted nor averaged.
                sync.scale(scale)

    def _await_exchange(self) -> None:
        for sync in self._exchanging():
            sync.wait()

    def _exchanging(self) -> list[OverlappedTableSync]:
        """Return those of which an exchange has begun whose result the tensors do not have."""
        syncs = [sync for fragment in self._fragments or () for sync in fragment]
        return [s for s in syncs if isinstance(s, OverlappedTableSync) and s.is_exchanging]

    def restart(self) -> None:
        """Measure the deltas from the current values, so that earlier changes are not added."""
        self.wait()
        fragments = self._require_fragments()
        self._follow()
        for group in self._groups:
            group.load()
        for fragment in fragments:
            for sync in fragment:
                sync.restart()

    def _require_finite(self) -> None:
        """Raise ValueError if a tensor is not finite, before anything changes."""
        values_of_groups = {
            id(tensor): values
            for group in self._groups
            for tensor, values in zip(group.tensors, group.values(), strict=True)
        }
        for index, tensor in enumerate(self._tensors):
            values = values_of_groups.get(id(tensor))
            values = tensor.values() if values is None else values
            shaped = values.reshape(tensor.shape)
            arrays.require_finite(shaped, f"{self.name}, tensor {index}")

    def _require_fragments(self) -> list[list[TableSync]]:
        if self._fragments is None:
            raise StateError(f"{self.name}: this rank is a server and not a worker")
        return self._fragments


@contextlib.contextmanager
def failing_on_all_ranks() -> Iterator[None]:
    """If the block raises, let the other ranks fail too: they wait for this rank's table."""
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):
            ArrayTable(0)  # The size is invalid, so the other ranks get a MismatchError.
        raise


def _checked_name(name: object) -> str:
    if name is None:
        return "parameters"
    if not isinstance(name, str):
        raise TypeError(f"name: expected a str, received {name!r}")
    return name
