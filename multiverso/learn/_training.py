"""The settings of a training, and the objects that the modules of a rank share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiverso.learn._activity import ActivityTimer
from multiverso.learn._layout import Group, Layout
from multiverso.learn._mpi import Channel
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.model import ModelBuilder


@dataclass(frozen=True)
class Training:
    """The arguments of a training, which `MPIManager` describes."""

    data: Data
    algo: Algo
    model_builder: ModelBuilder
    num_epochs: int
    train_list: Sequence[str]
    val_list: Sequence[str]
    callbacks: list[Any]
    synchronous: bool
    seed: int | None
    profile: Path | None
    checkpoint: Path | None
    checkpoint_interval: int
    restore: Path | None


@dataclass(frozen=True)
class RankContext:
    """The settings, the channel to other ranks, the roles of all ranks, and the timer of a rank."""

    training: Training
    channel: Channel
    layout: Layout
    timer: ActivityTimer

    @property
    def group(self) -> Group | None:
        """The group of this rank, or None if the rank is in no group."""
        return self.layout.group_of(self.channel.rank)
