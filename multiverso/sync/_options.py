"""The options that `ParamSync` and the adapters have, besides those of the updater."""

from typing import Any, Final, NamedTuple

from multiverso._native import supported
from multiverso._native.arguments import between, choice, flag, integer
from multiverso.sync._weighted_merge import Weight
from multiverso.tables._options import UpdaterName, UpdaterOptions, Wire
from multiverso.tables._updaters import FORMER_UPDATERS, UPDATERS, require_options


class AdapterOptions(UpdaterOptions, total=False):
    """What the adapters pass on to `multiverso.sync.ParamSync`, which describes it."""

    updater: UpdaterName
    fragments: int
    fragment_sync_delay: int
    fragment_update_alpha: float
    wire: Wire | None
    weight: Weight | None


class ManagerOptions(AdapterOptions, total=False):
    """The same of adapters that have no other name for the steps between two syncs."""

    sync_every: int


class SyncOptions(NamedTuple):
    """The arguments of `multiverso.sync.ParamSync` of these names, which describes them."""

    overlap: bool = False
    average: bool = False
    updater: UpdaterName = "add"
    fragments: int = 1
    sync_every: int = 1
    fragment_sync_delay: int = 0
    fragment_update_alpha: float = 0.0
    wire: Wire | None = None
    weight: Weight | None = None

    @property
    def merges(self) -> bool:
        """Whether a result is merged with what this worker has learned since its exchange began."""
        return self.fragment_sync_delay > 0 or self.fragment_update_alpha != 0

    @property
    def overlaps(self) -> bool:
        """Whether the exchanges are made in the background."""
        return self.overlap or self.merges

    def checked(self, of_updater: dict[str, Any]) -> "SyncOptions":
        """Return plain numbers and flags; raise if one is wrong, or they do not go together."""
        plain = self._replace(
            fragments=integer(self.fragments, "fragments", 1),
            sync_every=integer(self.sync_every, "sync_every", 1),
            overlap=flag(self.overlap, "overlap"),
            fragment_sync_delay=integer(self.fragment_sync_delay, "fragment_sync_delay", 0),
            fragment_update_alpha=between(
                self.fragment_update_alpha, "fragment_update_alpha", 0, 1
            ),
        )
        distance = plain.sync_every // plain.fragments
        if plain.merges and plain.fragment_sync_delay >= max(distance, 1):
            raise ValueError(
                f"fragment_sync_delay: expected less than {distance}, the steps from one fragment "
                "to the next (sync_every, or freq, divided by fragments), received "
                f"{plain.fragment_sync_delay}"
            )
        choice(self.updater, "updater", UPDATERS, FORMER_UPDATERS)
        flag(self.average, "average")
        supported.check(*plain.features())
        require_options(self.updater, of_updater, _ARGUMENTS)
        return plain

    def features(self) -> set[str]:
        """Return what a sync with these options uses, for `supported.check`."""
        optional = {
            "average": self.average,
            "fragment_sync_delay": self.merges,
            "overlap": self.overlap,
            "weight": self.weight is not None,
            "easgd": self.updater == "easgd",
            "row-wise updater": self.updater in ("rowwise_adagrad", "rowwise_adam"),
        }
        used = {"ParamSync", "add" if self.updater == "add" else "updater"}
        return used | {name for name, is_used in optional.items() if is_used}


#: The arguments of `ParamSync` and the adapters, of which an unknown option may be a misspelling.
_ARGUMENTS: Final = ("name", "freq", *SyncOptions._fields)


def divided(arguments: dict[str, Any]) -> tuple[SyncOptions, dict[str, Any]]:
    """Return the options of a sync among the arguments of an adapter, and those of its updater."""
    own = {name: value for name, value in arguments.items() if name in SyncOptions._fields}
    others = {name: value for name, value in arguments.items() if name not in own}
    return SyncOptions(**own), others
