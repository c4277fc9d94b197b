"""The messages between the ranks of a training: one record type for each, sent as JSON.

Messages carry progress and orders only; parameters travel through tables.
"""

import json
from dataclasses import dataclass
from typing import Any

from multiverso.learn._input import InputError

#: The index of an activity in `ACTIVITIES`, its start in Unix time, and its length in seconds.
Event = tuple[int, float, float]


class StoppedError(Exception):
    """The training was ended because another rank failed; the message is that rank's error."""


class Message:
    """Base class of all messages."""


@dataclass(frozen=True)
class Ready(Message):
    """To the master: the sending rank has made its model."""


@dataclass(frozen=True)
class ModelSize(Message):
    """From the master: all ranks are ready. Sub-masters, which have no model, need the sizes.

    Attributes
    ----------
    weights, state : int
        Number of trainable parameters, and of other floats such as running means.
    dtype : str
        "float32" or "float64".

    """

    weights: int
    state: int
    dtype: str


@dataclass(frozen=True)
class Failure(Message):
    """To or from the master: a rank has failed, and the training ends."""

    text: str
    is_input_error: bool

    def error(self) -> Exception:
        """Return the exception that the receiver raises."""
        return InputError(self.text) if self.is_input_error else StoppedError(self.text)


@dataclass(frozen=True)
class Report(Message):
    """To the master: the progress of a worker since its last report.

    Attributes
    ----------
    metrics : dict of str to float
        Mean loss and metrics over the samples since the last report.
    ended_epoch : bool
        Whether the worker has reached the end of its files.

    """

    samples: int
    updates: int
    metrics: dict[str, float]
    ended_epoch: bool


@dataclass(frozen=True)
class WorkerDone(Message):
    """To the sub-master or the master: a worker has finished, with the totals of its training."""

    rank: int
    samples: int
    updates: int
    seconds: dict[str, float]
    events: list[Event]
    staleness: list[tuple[int, int]]


@dataclass(frozen=True)
class GroupDone(Message):
    """To the master: all workers of a group have finished."""

    rank: int
    workers: list[int]
    exchanges: int
    seconds: dict[str, float]
    events: list[Event]


@dataclass(frozen=True)
class StartEpoch(Message):
    """From the master: start training or, in lock-step, the next epoch."""


@dataclass(frozen=True)
class StopTraining(Message):
    """From the master: do not start another epoch."""


@dataclass(frozen=True)
class SetLearningRate(Message):
    """From the master: use this learning rate in the worker's own optimizer."""

    rate: float


@dataclass(frozen=True)
class SaveCheckpoint(Message):
    """From the master: take part in saving a checkpoint, which is collective."""

    epochs: int


@dataclass(frozen=True)
class EndTraining(Message):
    """From the master: the master needs the tables no longer, so the session may end."""


def encode(message: Message) -> bytes:
    """Return a message as JSON: the name of its type, and its fields."""
    return json.dumps([type(message).__name__, vars(message)]).encode()


def decode(data: bytes | bytearray) -> Message:
    """Return the message that `encode` converted to `data`."""
    name, fields = json.loads(data)
    kinds: dict[str, Any] = {kind.__name__: kind for kind in Message.__subclasses__()}
    message: Message = kinds[name](**fields)
    return message
