"""What is to be trained, and how: what `MPIManager` was given, as its ranks read it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.model import ModelBuilder

__all__ = ["Training"]


@dataclasses.dataclass(frozen=True)
class Training:
    """The arguments of an `MPIManager`, which says what each of them means."""

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
