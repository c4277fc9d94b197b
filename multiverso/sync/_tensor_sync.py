"""Keeps a list of tensors in sync with a table for each dtype, for `ParamSync` and all adapters.

A `Tensor` is an array of parameters in the form in which NumPy or a framework keeps it.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from multiverso import _session
from multiverso._native import arrays, supported
from multiverso._native.arguments import between, choice, flag, integer
from multiverso._session import leaving
from multiverso.errors import StateError
from multiverso.sync._layout import groups_of, tables_of
from multiverso.sync._overlap import OverlappedTableSync
from multiverso.sync._table_sync import TableSync, joined
from multiverso.sync._tensor import Tensor, TensorGroup, Tensors
from multiverso.sync._weighted_merge import Weight, WeightedMerge
from multiverso.tables import ArrayTable
from multiverso.tables._array_table import ExchangeTable
from multiverso.tables._options import UpdaterName, Wire
from multiverso.tables._updaters import FORMER_UPDATERS, UPDATERS, require_options

#: The arguments of `ParamSync` and the adapters, of which an unknown option may be a misspelling.
_ARGUMENTS: Final = (
    *("name", "freq", "overlap", "average", "updater"),
    *("fragments", "sync_every", "wire", "weight"),
    *("fragment_sync_delay", "fragment_update_alpha"),
)


_Sync = TypeVar("_Sync", bound=TableSync)


class TensorSync:
    """Keeps tensors in sync with a table for each dtype.

    The constructor is collective: all ranks pass tensors of the same shapes. The tables and the
    tensors of all workers start with the master's values.

    `make_tensors` returns the tensors, perhaps as `Tensors`; if it raises, other ranks get a
    `MismatchError`. `name` is that in messages, "parameters" by default. With `overlap`, the
    exchanges are made in the background, see `_overlap`. With `average`, each delta is divided by
    the number of workers; integers are not, and their tensors have the master's share. The updater
    and its options are as for `ArrayTable`, the other arguments as for `multiverso.sync.ParamSync`.
    """

    def __init__(
        self,
        make_tensors: Callable[[], Sequence[Tensor]],
        name: str | None,
        overlap: bool = False,
        average: bool = False,
        updater: UpdaterName = "add",
        *,
        fragments: int = 1,
        sync_every: int = 1,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: float = 0.0,
        wire: Wire | None = None,
        weight: Weight | None = None,
        **options: float | None,
    ) -> None:
        session = _session.current()
        with failing_on_all_ranks():
            name = _checked_name(name)
            integer(fragments, "fragments", 1)
            self._sync_every = integer(sync_every, "sync_every", 1)
            flag(overlap, "overlap")
            self._delay = integer(fragment_sync_delay, "fragment_sync_delay", 0)
            alpha = between(fragment_update_alpha, "fragment_update_alpha", 0, 1)
            self._merges = self._delay > 0 or alpha != 0
            if self._merges:
                _require_distance(self._delay, sync_every // fragments)
            choice(updater, "updater", UPDATERS, FORMER_UPDATERS)
            optional = {
                "average": flag(average, "average"),
                "fragment_sync_delay": self._merges,
                "overlap": overlap,
                "weight": weight is not None,
                "easgd": updater == "easgd",
                "row-wise updater": updater in ("rowwise_adagrad", "rowwise_adam"),
            }
            used = {name for name, is_used in optional.items() if is_used}
            used |= {"ParamSync", "add" if updater == "add" else "updater"}
            supported.check(*used)
            require_options(updater, options, _ARGUMENTS)
            tensors = make_tensors()
            self._tensors = tensors if isinstance(tensors, Tensors) else Tensors(tensors)
            self._groups: list[TensorGroup] = groups_of(tensors)
            for group in self._groups:
                group.load()
            if not any(tensor.size for tensor in tensors):
                given = "tensors without elements" if tensors else "none"
                msg = f"{name}: expected parameters, received {given}"
                raise ValueError(msg)
            by_fragment = tables_of(name, tensors, fragments)
            parts = [part for fragment in by_fragment for _, part in fragment]
            names = [table_name for fragment in by_fragment for table_name, _ in fragment]
            if {part[0].dtype.kind for part in parts} != {"f"}:
                supported.check("integers", *(used & {"weight"}))
            initial = [joined(part) if session.may_be_master else None for part in parts]
        self.name = name
        self._session = session
        # The delta is sent as the gradient last - current, so sgd with this rate adds the mean. In
        # an elastic session, each sync divides by the current number of workers instead.
        self._divides = average and session.options.elastic
        rate = 1.0 if self._divides else 1 / session.num_workers
        is_averaged = [average and part[0].dtype.kind == "f" for part in parts]
        self.tables: tuple[ArrayTable, ...] = tuple(
            ExchangeTable(
                sum(tensor.size for tensor in part),
                init,
                dtype=part[0].dtype,
                updater="sgd" if averages else updater,
                name=table_name,
                wire=wire if part[0].dtype == np.float32 else None,
                **({"learning_rate": rate} if averages else options),
            )
            for part, table_name, init, averages in zip(
                parts, names, initial, is_averaged, strict=True
            )
        )
        del initial
        for table, averages in zip(self.tables, is_averaged, strict=True):
            if averages:  # A checkpoint has the rate of the job that wrote it.
                session.fixed_options[table] = {"learning_rate": rate}
        self._merge = None if weight is None else WeightedMerge(weight, name)
        self._overlaps = overlap or self._merges
        self._fragments: list[list[TableSync]] | None = None
        if session.worker_id >= 0:
            tables = iter(self.tables)
            self._fragments = [
                [self._table_sync(part, next(tables), alpha) for _, part in fragment]
                for fragment in by_fragment
            ]
            for group in self._groups:
                group.scatter()
        self._steps = 0  # Since all fragments were synchronized.
        self.asks_to_leave = True  # Whether `step` does so.
        self.has_tensors = True  # Whether they are the program's own, and not copies.
        self._successor: str | None = None
        self._replace_earlier()
        session.departure.add_last_call(self._complete)

    def _table_sync(self, tensors: list[Tensor], table: ArrayTable, alpha: float) -> TableSync:
        if not self._overlaps:
            return TableSync(tensors, table)
        return OverlappedTableSync(tensors, table, alpha if self._merges else None)

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
        if not self._merges:
            if due := self._due(first, self._steps):
                self._sync([sync for index in due for sync in fragments[index]])
        else:
            for step in range(first, self._steps):
                if due := self._due(step + self._delay, step + 1 + self._delay):
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
        count = len(self._require_fragments())
        turns = range(first * count // self._sync_every, end * count // self._sync_every)
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
        if self._overlaps:
            self._begin(syncs)
            if self._merges:
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
            msg = (
                f"{self.name}: expected parameters of its own, but '{self._successor}', "
                "which was made later, has some of them; use the later one, or give each its own"
            )
            raise StateError(msg)
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
            msg = f"{self.name}: the session in which it was made has been shut down"
            raise StateError(msg)
        self._await_exchange()
        if others := [sync for sync in self._exchanging() if self._merges or sync not in syncs]:
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
        if self._overlaps:
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
            msg = f"{self.name}: this rank is a server and not a worker"
            raise StateError(msg)
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
        msg = f"name: expected a str, received {name!r}"
        raise TypeError(msg)
    return name


def _require_distance(delay: int, distance: int) -> None:
    """Raise ValueError unless results of exchanges can be merged after `delay` steps."""
    if delay >= max(distance, 1):
        msg = (
            f"fragment_sync_delay: expected less than {distance}, the steps from one fragment to "
            f"the next (sync_every, or freq, divided by fragments), received {delay}"
        )
        raise ValueError(msg)
