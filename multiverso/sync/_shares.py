"""How much of a worker's delta is added to the table: the share of each kind of tensor."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from multiverso import _session
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._table_copy import Share

SyncStatistics = Literal["average", "master", False]

_CHOICES: Final = ("average", "master", False)


class Shares:
    """The share of the delta of this worker's statistics that is added to the table.

    `choice`, which messages call `argument`, is "average", "master" or False, for none. If the
    table divides by the number of workers, the shares of floats are as many times larger.
    """

    def __init__(self, choice: object, argument: str, average: bool) -> None:
        if choice is not False and choice not in ("average", "master"):
            raise ValueError(f"{argument}: expected one of {_CHOICES}, received {choice!r}")
        session = _session.find()  # None in a process that only reads, whose shares are not used
        self._session = session
        # Tensors with the same function are synchronized together, so there is one for all calls.
        self._share_of_floats = self._float_share
        self._averages_params = average
        self._choice = choice

    def of(self, dtype: str) -> Share | None:
        """Return the share of statistics of this dtype, or None if they are not synchronized.

        Integers are not averaged but taken from the master. In a session whose workers and master
        may change, the share is a function.
        """
        if self._choice is False or dtype not in TABLE_DTYPES:
            return None
        is_float = TABLE_DTYPES[dtype].kind == "f"
        return _now_or_at_each_sync(
            self._session, self._share_of_floats if is_float else master_share
        )

    def _float_share(self) -> float:
        workers = 1 if self._session is None else self._session.num_workers
        scale = float(workers) if self._averages_params else 1.0
        return scale / workers if self._choice == "average" else scale * master_share()


def share_of_parameter(dtype: str, average: bool) -> Share:
    """Return the share of a parameter's delta: integers, without a mean, are the master's."""
    if not average or dtype not in TABLE_DTYPES or TABLE_DTYPES[dtype].kind == "f":
        return 1
    return _now_or_at_each_sync(_session.find(), master_share)


def master_share() -> int:
    """Return 1 on the master worker, and in a process without a session, otherwise 0."""
    session = _session.find()
    return 1 if session is None else int(session.is_master_worker())


def averages_by_default(average: bool | None, options: Mapping[str, object], what: str) -> bool:
    """Return whether `what` averages if its argument `average` is as given.

    None is the default: True, unless the options have an updater, which does what it does to each
    delta. Earlier versions summed by default, so with several workers the master gets a warning.
    """
    if average is not None:
        return average
    if options.get("updater", "add") != "add":
        return False
    session = _session.find()
    if session is not None and session.is_master_worker() and session.num_workers > 1:
        msg = (
            f"{what} averages the changes of the workers by default; earlier versions summed them: "
            "pass average=True to keep the average, or average=False to sum"
        )
        warnings.warn(msg, FutureWarning, stacklevel=3)
    return True


def _now_or_at_each_sync(session: Any, share: Callable[[], float]) -> Share:
    """Return the share, or the function in a session whose workers and master may change."""
    if session is not None and session.options.continues:
        return share
    return share()
