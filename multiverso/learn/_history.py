"""What a training leaves behind: metrics of every epoch, and where the time went."""

import json
import math
import time
from pathlib import Path
from typing import Any

from multiverso._version import __version__

__all__ = ["History", "write_json"]


class History:
    """Collects what happens in a training.

    Attributes
    ----------
    metrics : dict of str to list of float
        By name, one value for each epoch, as ``model.fit`` returns it; those of the validation
        begin with ``val_``. None where an epoch has no value.
    epochs : list of dict
        For each epoch: its number from 1, seconds it took and since the start, samples, updates.
    validations : list of dict
        For each validation: epoch, updates, seconds since the start, and the metrics.
    workers : list of dict
        For each worker: rank, samples, updates, and the seconds computing, waiting, communicating.
    groups : list of dict
        For each group: rank of the sub-master, ranks of the workers, how often it has exchanged
        with the master's parameters, and its seconds waiting and communicating.
    staleness : dict of int to int
        How many updates were applied after so many of other workers' since their computation began.

    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[float | None]] = {}
        self.epochs: list[dict[str, Any]] = []
        self.validations: list[dict[str, Any]] = []
        self.workers: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self.staleness: dict[int, int] = {}
        self.first_epoch = 0
        self._start = self._epoch_start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def add_epoch(self, epoch: int, samples: int, updates: int, logs: dict[str, float]) -> None:
        """Take note of an epoch that is over."""
        now = time.perf_counter()
        seconds = now - self._epoch_start
        self.epochs.append(
            {
                "epoch": epoch + 1,
                "seconds": seconds,
                "time": now - self._start,
                "samples": samples,
                "updates": updates,
                "samples_per_second": samples / seconds if seconds > 0 else None,
            }
        )
        self._epoch_start = now
        before = len(self.epochs) - 1
        for name in logs:
            self.metrics.setdefault(name, [None] * before)
        for name, values in self.metrics.items():
            values.append(logs.get(name))

    def add_validation(self, epoch: int, updates: int, results: dict[str, float]) -> None:
        """Take note of a validation."""
        self.validations.append(
            {"epoch": epoch + 1, "updates": updates, "time": self.seconds, **results}
        )

    def add_worker(self, rank: int, message: dict[str, Any]) -> None:
        """Take note of a worker that is done."""
        totals = {name: message[name] for name in ("samples", "updates")}
        self.workers.append({"rank": rank, **totals, **message["seconds"]})
        self.workers.sort(key=lambda worker: int(worker["rank"]))
        for late, count in message["staleness"]:
            self.staleness[late] = self.staleness.get(late, 0) + count

    def add_group(self, rank: int, message: dict[str, Any]) -> None:
        """Take note of a sub-master whose workers are done."""
        seconds = {name: message["seconds"][name] for name in ("waiting", "communicating")}
        found = {name: message[name] for name in ("workers", "exchanges")}
        self.groups.append({"rank": rank, **found, **seconds})
        self.groups.sort(key=lambda group: int(group["rank"]))

    def as_dict(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return all of it for a JSON file, with the arguments of the training."""
        return {
            "multiverso": __version__,
            "args": arguments,
            "first_epoch": self.first_epoch + 1,
            "history": self.metrics,
            "epochs": self.epochs,
            "validations": self.validations,
            "staleness": {str(late): count for late, count in sorted(self.staleness.items())},
            "workers": self.workers,
            "groups": self.groups,
            "train_time": self.epochs[-1]["time"] if self.epochs else 0.0,
        }


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all. What JSON has no word for becomes null or text."""
    text = json.dumps(_plain(value), indent=2, allow_nan=False)
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(text + "\n", "utf-8")
    unfinished.replace(path)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
