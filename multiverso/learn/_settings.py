"""What the parts of a training read of its settings, which `MPIManager` keeps."""

from pathlib import Path
from typing import Any, Protocol

from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.model import ModelBuilder


class Settings(Protocol):
    """The arguments of `MPIManager` that have these names, checked."""

    data: Data
    algo: Algo
    model_builder: ModelBuilder
    num_epochs: int
    train_list: list[str]
    val_list: list[str]
    callbacks: list[Any]
    synchronous: bool
    profile: Path | None
    checkpoint: Path | None
    checkpoint_interval: int
    restore: Path | None
