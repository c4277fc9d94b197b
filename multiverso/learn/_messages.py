"""The messages between the ranks of a training: reports to the master, and its orders.

Parameters travel through tables instead. The order of the messages is:

1. Every rank but the master sends `Value` or `Failure`. The master then sends `AgreedValues` to all
   other ranks or, once a rank has failed, `Failure`. This may happen several times.
2. The master sends `StartEpoch`. The workers send a `Report` at the end of each epoch and, unless
   in lock-step, twice a second. Any rank may send `Failure`, and the master any other order.
3. Each worker sends `WorkerDone` to the master, or with groups to its sub-master. When the whole
   group is done, the sub-master sends `GroupDone` and forwards each `WorkerDone`.
4. When all workers are done, the master sends `EndTraining`.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

from multiverso._extras import MissingExtraError
from multiverso.learn._input import InputError, first_line

_log = logging.getLogger("multiverso")

#: The index of an activity in `ACTIVITIES`, its start in Unix time, and its length in seconds.
Event = tuple[int, float, float]


class StoppedError(Exception):
    """The training was ended because another rank failed; the message is that rank's error."""


class Message:
    """Base class of all messages."""


@dataclass(frozen=True)
class Value(Message):
    """To the master: the sending rank is ready, and shares this value with all ranks."""

    value: Any


@dataclass(frozen=True)
class AgreedValues(Message):
    """From the master: all ranks are ready. These are their values, in rank order."""

    values: list[Any]


@dataclass(frozen=True)
class Failure(Message):
    """To or from the master: a rank has failed, and the training ends."""

    text: str
    is_input_error: bool

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Return the failure of a rank that has raised `error`."""
        is_input_error = isinstance(error, InputError | MissingExtraError)
        if not is_input_error:
            _log.debug("this rank failed", exc_info=error)
        text = first_line(error)
        if not is_input_error and not isinstance(error, StoppedError):
            text = f"{type(error).__name__}: {text}"
        return cls(text, is_input_error)

    def error(self) -> Exception:
        """Return the exception that the receiver raises."""
        return InputError(self.text) if self.is_input_error else StoppedError(self.text)


@dataclass(frozen=True)
class Report(Message):
    """To the master: the progress of a worker since its last report."""

    samples: int
    updates: int
    metrics: dict[str, float]  # The mean loss and metrics over these samples.
    ended_epoch: bool  # Whether the worker has ended an epoch, also if it was told to stop.


@dataclass(frozen=True)
class WorkerDone(Message):
    """To the sub-master or the master: a worker is done; the totals of its training."""

    rank: int
    samples: int
    updates: int
    seconds: dict[str, float]
    events: list[Event]
    staleness: list[tuple[int, int]]


@dataclass(frozen=True)
class GroupDone(Message):
    """To the master: all workers of a group are done, and their updates have been passed on."""

    rank: int
    workers: list[int]
    exchanges: int
    seconds: dict[str, float]
    events: list[Event]


@dataclass(frozen=True)
class StartEpoch(Message):
    """From the master: start training; in lock-step, go on after an epoch, also after the last."""


@dataclass(frozen=True)
class StopTraining(Message):
    """From the master: end the epoch after the current batch, and start no other."""


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
    """From the master: the session may end, because the master no longer needs the tables."""


def encode(message: Message) -> bytes:
    """Return a message as JSON: the name of its type, and its fields."""
    return json.dumps([type(message).__name__, vars(message)]).encode()


def decode(data: bytes | bytearray) -> Message:
    """Return the message that `encode` converted to `data`."""
    name, fields = json.loads(data)
    types: dict[str, Any] = {cls.__name__: cls for cls in Message.__subclasses__()}
    message: Message = types[name](**fields)
    return message
