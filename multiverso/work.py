"""`multiverso.Work`: items that the workers of a job take from a shared list, each item once."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from multiverso import _session
from multiverso._native import arguments, supported
from multiverso._session import leaving
from multiverso.errors import MultiversoError
from multiverso.tables import ArrayTable

__all__ = ["Work"]

T_co = TypeVar("T_co", covariant=True)

#: The states of an item that no rank holds. A new table is zero.
_FREE: Final = 0
_DONE: Final = -1
#: The state of a held item is ``(rank + 1) << _TIME_BITS | end``: the end of the lease in
#: milliseconds of the system's clock, which a later job that loads the table can compare too.
_TIME_BITS: Final = 42
#: Seconds between two looks at the states, when all items have been handed out.
_INTERVAL: Final = 0.02


class Work(Generic[T_co]):
    """Hands out items to the workers, each item once. The constructor is collective.

    Each worker loops over the object, and receives items until all are done. A faster worker
    receives more items. An item is done when the worker's loop asks for its next item. A worker
    leases the item it received:

    - If it dies or leaves (`lost_ranks`), other workers receive the item.
    - If it does not ask for its next item before the lease ends, other workers may receive the item
      too. Choose a lease longer than the longest time that an item takes.
    - If its loop ends by ``break`` or an exception, the lease ends at once.

    A worker that is to leave (`multiverso.check_leaving`) does so when it asks for its next item.
    If its program leaves during an item, that item is not done, and is handed out again.

    So every item is done at least once, and twice only if its worker died or its lease ended. When
    all items have been handed out, a worker waits until they are done, or until it receives one of
    them again, at most for a lease.

    The object is a table with one int64 per item and a counter. `save` includes it. After a `load`,
    items that were done before the save are not handed out, and items that were leased are handed
    out again. In sync mode, every worker needs the same number of rounds, so there is no `Work`.

    Parameters
    ----------
    items : sequence
        The items, such as ``range(n)`` or a list of files. All ranks pass as many, and usually the
        same. For several epochs, pass pairs of epoch and item.
    lease : float, optional
        Seconds until an item that is not done is handed out again.
    name : str, optional
        The name of the table in messages and checkpoints; by default "table N".

    Raises
    ------
    TypeError, ValueError, MismatchError
        If an argument is invalid, or another rank passes another number of items.
    UnsupportedError
        If the session is in sync mode.
    StateError, OperationTimeout, PeerLostError, AbortedError
        As for `ArrayTable`; in the loop, as for `ArrayTable.fetch_add`.

    Notes
    -----
    On several nodes, the ends of leases are as exact as the clocks of the nodes agree.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     total = mv.ArrayTable(1)
    ...     for number in mv.Work(range(10), lease=60):
    ...         total.add([number])
    ...     total.get()
    array([45.], dtype=float32)

    """

    def __init__(
        self, items: Sequence[T_co], lease: float = 60.0, *, name: str | None = None
    ) -> None:
        self._session = _session.current()
        supported.check("Work", *self._session.features())
        is_sequence = hasattr(items, "__getitem__") and hasattr(items, "__len__")
        if not is_sequence or isinstance(items, Mapping):
            msg = f"items: expected a sequence, received {items!r}; convert an iterator to a list"
            raise TypeError(msg)
        self._lease = arguments.seconds(lease, "lease")
        self._items = items
        self._count = len(items)
        self._held: set[tuple[int, int]] = set()  # this worker's items, with their states
        # The last element is the number of items that have been handed out for the first time.
        self._states = ArrayTable(self._count + 1, dtype="int64", name=name)

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def __iter__(self) -> Iterator[T_co]:
        """Receive items until all are done; each worker of the job calls this."""
        leaving.check_between_items(self._session)
        while (held := self._take()) is not None:
            try:
                yield self._items[held[0]]
            except BaseException:
                # The session may have ended already.
                with contextlib.suppress(MultiversoError):
                    self._release(*held, _FREE)
                raise
            self._release(*held, _DONE)
            leaving.check_between_items(self._session)

    def _take(self) -> tuple[int, int] | None:
        """Return an item that this worker now holds with its state, or None when all are done."""
        while (index := int(self._states.fetch_add(self._count))) < self._count:
            if held := self._claim(index, _FREE):
                return held
        # All items have been handed out once.
        first, end = 0, self._count
        while True:
            states = self._states.get(index=np.s_[first:end])
            unfinished = np.flatnonzero(states != _DONE)
            for index in (first + self._takeable(first, states, unfinished)).tolist():
                if held := self._claim(index, int(states[index - first])):
                    return held
            if len(unfinished):
                first, end = first + int(unfinished[0]), first + int(unfinished[-1]) + 1
                time.sleep(_INTERVAL)
                leaving.check_between_items(self._session)
            elif (first, end) == (0, self._count):
                return None
            else:  # A load may have changed the state of an item that was done.
                first, end = 0, self._count

    def _takeable(
        self, first: int, states: NDArray[np.int64], unfinished: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Return those of the unfinished items that nobody holds, or whose lease has ended."""
        holders = (states[unfinished] >> _TIME_BITS) - 1
        ends = states[unfinished] & ((1 << _TIME_BITS) - 1)
        is_takeable = np.isin(holders, (-1, *self._session.lost_ranks()))
        is_takeable |= ends <= time.time() * 1000
        # After a load, an item may have been leased by a rank of an earlier job.
        is_takeable |= holders >= self._session.size
        for i in np.flatnonzero(holders == self._session.rank):
            offset = unfinished[i]
            is_takeable[i] |= (first + offset, states[offset]) not in self._held
        return unfinished[is_takeable]

    def _claim(self, index: int, state: int) -> tuple[int, int] | None:
        """Lease an item if it still has this state; return it with its new state, or None."""
        end = int((time.time() + self._lease) * 1000)
        lease = (self._session.rank + 1) << _TIME_BITS | end
        if self._states.compare_swap(index, state, lease) != state:
            return None
        self._held.add((index, lease))
        return index, lease

    def _release(self, index: int, lease: int, state: int) -> None:
        """End a lease; an item that is done is done, even if another rank holds it by now."""
        self._held.discard((index, lease))
        before = int(self._states.compare_swap(index, lease, state))
        while state == _DONE and before not in (_DONE, _FREE, lease):
            lease = before
            before = int(self._states.compare_swap(index, lease, state))
