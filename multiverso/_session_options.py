"""What a session is opened with, checked."""

import math
import numbers
import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from multiverso._native import capi

ROLES: Final[dict[str, int]] = {
    "all": capi.MV_ROLE_ALL,
    "worker": capi.MV_ROLE_WORKER,
    "server": capi.MV_ROLE_SERVER,
}

#: What becomes of a NaN or an infinity in what is added.
NAN_POLICIES: Final = ("propagate", "error")

#: What happens to the session when a rank is lost.
LOSSES: Final[dict[str, int]] = {
    "fail": capi.MV_LOSS_FAILS,
    "continue": capi.MV_LOSS_CONTINUES,
}

#: A year, the most that the library takes: a longer deadline is as good as none.
_MAX_SECONDS: Final = 365 * 24 * 3600.0


@dataclass(frozen=True)
class Options:
    """What `multiverso.init` was called with; two calls agree if these are equal.

    Attributes
    ----------
    mode : int
        When a get waits for other workers: ``MV_MODE_ASYNC``, ``_SYNC`` or ``_STALE``.
    staleness : int
        With ``MV_MODE_STALE``: how many rounds a worker may be ahead of the slowest; else 0.
    role : str
        What this rank does: a key of `ROLES`.
    timeout : float
        Deadline of any single call, in seconds.
    comm : object
        The communicator given, or None.
    is_checked : bool
        Whether what is added must be finite; a matter of this rank alone.
    on_peer_lost : str
        Whether the session goes on without lost ranks: a key of `LOSSES`.
    peer_timeout : float
        How long a rank may give no sign of life, in seconds.

    """

    mode: int
    staleness: int
    role: str
    timeout: float
    comm: object
    is_checked: bool
    on_peer_lost: str
    peer_timeout: float

    @property
    def goes_on(self) -> bool:
        """Whether the session goes on without the ranks it loses."""
        return self.on_peer_lost == "continue"


def checked(
    sync: object,
    staleness: object,
    role: object,
    comm: object,
    timeout: object,
    nan_policy: object,
    on_peer_lost: object,
    peer_timeout: object,
) -> Options:
    """Return the options of a session; TypeError or ValueError if wrong."""
    if not isinstance(sync, bool | np.bool_):
        msg = f"sync: expected a bool, received {sync!r}"
        raise TypeError(msg)
    mode, rounds = (capi.MV_MODE_SYNC if sync else capi.MV_MODE_ASYNC), 0
    if staleness is not None:
        rounds = _staleness(staleness)
        if sync and rounds:
            msg = f"expected sync=True or staleness, received sync=True and staleness={rounds}"
            raise ValueError(msg)
        # No round ahead of the slowest is lock-step.
        mode = capi.MV_MODE_STALE if rounds else capi.MV_MODE_SYNC
    on_loss = _one_of(LOSSES, on_peer_lost, "on_peer_lost")
    if on_loss == "continue" and mode != capi.MV_MODE_ASYNC:
        msg = (
            "on_peer_lost: expected 'fail' with sync=True or staleness, whose rounds need every "
            "worker, received 'continue'"
        )
        raise ValueError(msg)
    is_checked = _one_of(NAN_POLICIES, nan_policy, "nan_policy") == "error"
    return Options(
        mode,
        rounds,
        _one_of(ROLES, role, "role"),
        _seconds(timeout, "timeout"),
        comm,
        is_checked,
        on_loss,
        _seconds(peer_timeout, "peer_timeout"),
    )


def _staleness(staleness: object) -> int:
    if isinstance(staleness, bool | np.bool_) or not hasattr(staleness, "__index__"):
        msg = f"staleness: expected an int, the number of rounds, received {staleness!r}"
        raise TypeError(msg)
    rounds = operator.index(staleness)
    if not 0 <= rounds < 2**63:
        msg = f"staleness: expected 0 to 2**63-1 rounds, received {rounds}"
        raise ValueError(msg)
    return rounds


def _one_of(choices: Collection[str], value: object, argument: str) -> str:
    wanted = ", ".join(map(repr, choices))
    if not isinstance(value, str):
        msg = f"{argument}: expected one of {wanted}, received {value!r}"
        raise TypeError(msg)
    if value not in choices:
        msg = f"{argument}: expected one of {wanted}, received {value!r}"
        raise ValueError(msg)
    return value


def _seconds(timeout: object, argument: str) -> float:
    if isinstance(timeout, bool | np.bool_) or not isinstance(timeout, numbers.Real):
        msg = f"{argument}: expected seconds as a number, received {timeout!r}"
        raise TypeError(msg)
    try:
        seconds = float(timeout)
    except OverflowError:  # an int that no float holds
        seconds = math.inf
    if not (math.isfinite(seconds) and seconds > 0):
        msg = f"{argument}: expected a finite number of seconds above 0, received {timeout!r}"
        raise ValueError(msg)
    return min(seconds, _MAX_SECONDS)
