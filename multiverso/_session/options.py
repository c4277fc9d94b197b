"""Checks the options of a session and converts them for the C library."""

from typing import Final, Literal, NamedTuple

from multiverso._local.job import ELASTIC, JOIN, find_join, find_worker_range
from multiverso._native import arguments, capi, supported
from multiverso._native.checkpoint_calls import REMOTE
from multiverso._native.launchers import own_environ
from multiverso._native.places import StrPath, is_address, path_or_address, writable_folder
from multiverso._native.remote import RemoteFolder

#: The operations of `multiverso.aggregate`.
ReduceOp = Literal["sum", "mean", "product", "min", "max", "and", "or", "xor"]

#: The roles of a rank, with their codes in the C API.
ROLES: Final[dict[str, int]] = {
    "all": capi.MV_ROLE_ALL,
    "worker": capi.MV_ROLE_WORKER,
    "server": capi.MV_ROLE_SERVER,
}

#: The roles of Multiverso 2016 that differ, and what to do instead.
_FORMER_ROLES: Final = {"default": "write 'all'", "none": "start fewer ranks"}

#: The treatments of NaN and infinity in deltas.
NAN_POLICIES: Final = ("propagate", "error")

#: The reactions of the session to a lost rank, with their codes in the C API.
LOSSES: Final[dict[str, int]] = {"fail": capi.MV_LOSS_FAILS, "continue": capi.MV_LOSS_CONTINUES}

#: The modes, by their names as features.
_MODES: Final = {
    "async": capi.MV_MODE_ASYNC,
    "sync": capi.MV_MODE_SYNC,
    "staleness": capi.MV_MODE_STALE,
}

#: What SIGTERM does to a rank, with the codes in the C API.
TERMS: Final[dict[str, int]] = {"end": capi.MV_TERM_ENDS, "leave": capi.MV_TERM_LEAVES}


class Default(float):
    """A number that no caller has passed, but that stands in a signature."""


#: The limits of waits for ranks that are heard of, and for ranks of which nothing has been heard.
TIMEOUT: Final = Default(1800.0)
START_TIMEOUT: Final = Default(120.0)


def limits(timeout: object, start_timeout: object) -> tuple[float | None, float | None]:
    """Return both limits; the first is also the second, if it is given and the second is not."""
    longest = arguments.limit(timeout, "timeout")
    if isinstance(start_timeout, Default) and not isinstance(timeout, Default):
        return longest, longest
    return longest, arguments.limit(start_timeout, "start_timeout")


class SessionOptions(NamedTuple):
    """The arguments of `multiverso.init`, checked, which must equal those of an open session."""

    #: Whether the session is in lock-step, also because of a staleness of 0.
    sync: bool
    #: The rounds that a worker may be ahead of the slowest, 1 or more; None without this bound.
    staleness: int | None
    #: A key of `ROLES`.
    role: str
    comm: object
    #: In seconds; None for no limit. `start_timeout` is for ranks of which nothing has been heard.
    timeout: float | None
    start_timeout: float | None
    #: One of `NAN_POLICIES`. Each rank may choose differently.
    nan_policy: str
    #: A key of `LOSSES`.
    on_peer_lost: str
    #: The seconds that a rank may be without a heartbeat.
    peer_timeout: float
    name: str | None
    elastic: bool
    #: The most workers that an elastic session has at the same time; 0 for any number.
    max_workers: int
    #: The elastic session to join: its name, or the id of a process that belongs to it.
    join: str | None
    #: A key of `TERMS`.
    on_term: str
    #: The absolute path, or the address, of the folder in which ranks save that leave together.
    checkpoints: str | None

    @property
    def mode_name(self) -> str:
        """The name of the mode as a feature."""
        return "staleness" if self.staleness else "sync" if self.sync else "async"

    @property
    def mode(self) -> int:
        """``MV_MODE_ASYNC``, ``_SYNC`` or ``_STALE``."""
        return _MODES[self.mode_name]

    @property
    def requires_finite(self) -> bool:
        """Whether every delta must be finite."""
        return self.nan_policy == "error"

    def features(self) -> set[str]:
        """Return what a session with these options uses, for `supported.check`."""
        used = {self.mode_name, f"{self.on_term} on SIGTERM"}
        if not self.elastic:  # An elastic session always continues.
            used.add(self.on_peer_lost)
        optional = {
            "elastic": self.elastic,
            "roles": self.role != "all",
            "checkpoints": self.checkpoints is not None,
            "checkpoints at an address": is_address(self.checkpoints or ""),
        }
        return used | {name for name, is_used in optional.items() if is_used}

    def arguments(self) -> dict[str, object]:
        """Return the arguments of `multiverso.init`, and variables, that give these options."""
        variables = {"max_workers": ELASTIC, "join": JOIN}
        return {variables.get(name, name): value for name, value in self._asdict().items()}

    @property
    def continues(self) -> bool:
        """Whether the session continues without lost ranks."""
        return self.elastic or self.on_peer_lost == "continue"


def session_options(
    sync: bool = False,
    *,
    staleness: int | None = None,
    role: str = "all",
    comm: object = None,
    timeout: float | None = TIMEOUT,
    start_timeout: float | None = START_TIMEOUT,
    nan_policy: str = "propagate",
    on_peer_lost: str = "fail",
    peer_timeout: float = 30.0,
    name: str | None = None,
    elastic: bool = False,
    on_term: str = "end",
    checkpoints: StrPath | None = None,
) -> SessionOptions:
    """Return the options of a session; raise TypeError or ValueError if one is wrong."""
    is_sync, rounds = arguments.flag(sync, "sync"), 0
    if staleness is not None:
        rounds = arguments.integer(staleness, "staleness", 0)
        if is_sync and rounds:
            supported.check("sync", "staleness")
        # With a staleness of 0 no worker may be ahead of another, which is lock-step.
        is_sync = not rounds
    reaction = arguments.choice(on_peer_lost, "on_peer_lost", LOSSES)
    longest, longest_start = limits(timeout, start_timeout)
    environ = own_environ()
    workers, join = find_worker_range(environ), find_join(environ)
    is_elastic = arguments.flag(elastic, "elastic") or workers is not None or join is not None
    term = arguments.choice(on_term, "on_term", TERMS)
    folder = None if checkpoints is None else _checkpoints(checkpoints)
    options = SessionOptions(
        sync=is_sync,
        staleness=rounds or None,
        role=arguments.choice(role, "role", ROLES, _FORMER_ROLES),
        timeout=longest,
        start_timeout=longest_start,
        comm=comm,
        nan_policy=arguments.choice(nan_policy, "nan_policy", NAN_POLICIES),
        on_peer_lost=reaction,
        peer_timeout=arguments.seconds(peer_timeout, "peer_timeout"),
        name=None if name is None else arguments.name(name),
        elastic=is_elastic,
        max_workers=0 if workers is None else workers.most,
        join=join,
        on_term=term,
        checkpoints=folder,
    )
    supported.check(*options.features())
    return options


def _checkpoints(place: StrPath) -> str:
    address = path_or_address(place, "checkpoints")
    if is_address(address):
        RemoteFolder(address, REMOTE)  # Its errors come before the job begins.
        return address
    return writable_folder(address, "checkpoints")
