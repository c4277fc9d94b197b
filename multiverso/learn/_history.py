"""The histories of trainings: metrics, counts and times, which the command writes and plots."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from multiverso._extras import needs
from multiverso._native import files, places
from multiverso._version import __version__
from multiverso.learn._input import as_input_error, read_text

#: An activity, its start in Unix time, and its length in seconds.
Event = tuple[str, float, float]

#: A rank computes, waits (for data, other ranks or orders of the master), or communicates.
_ACTIVITIES: Final = ("computing", "waiting", "communicating")


class ActivityTimer:
    """Adds up the `seconds` of each activity; with `trace` it keeps an event for each interval."""

    def __init__(self, trace: bool = False) -> None:
        self.seconds = dict.fromkeys(_ACTIVITIES, 0.0)
        self.events: list[Event] = []
        self._trace = trace
        # perf_counter alone cannot be compared between processes on every platform.
        self._offset = time.time() - time.perf_counter()

    @contextlib.contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Add the time that the `with` block takes to an activity."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            duration = time.perf_counter() - begin
            self.seconds[activity] += duration
            if self._trace:
                self.events.append((activity, self._offset + begin, duration))


class History:
    """Collects metrics, counts and times of a training."""

    def __init__(self, first_epoch: int = 0) -> None:
        #: One value for each epoch by name, as in the history of ``model.fit``, or None if an epoch
        #: has no value. Names of validation metrics begin with ``val_``.
        self.metrics: dict[str, list[float | None]] = {}
        #: For each epoch: its number from 1, its seconds, seconds since the start, samples,
        #: updates.
        self.epochs: list[dict[str, Any]] = []
        #: For each validation: epoch, updates, seconds since the start, and the metrics.
        self.validations: list[dict[str, Any]] = []
        #: For each worker: rank, samples, updates, and the seconds computing, waiting,
        #: communicating.
        self.workers: list[dict[str, Any]] = []
        #: The number of updates of all workers with each staleness, as `Worker` defines it.
        self.staleness: Counter[int] = Counter()
        #: The number of epochs before the restored checkpoint, or 0.
        self.first_epoch = first_epoch
        self._events: dict[int, list[Event]] = {}
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def add_epoch(self, epoch: int, samples: int, updates: int, logs: dict[str, float]) -> None:
        """Record an epoch that has ended."""
        now = self.seconds
        seconds = now - (self.epochs[-1]["time"] if self.epochs else 0.0)
        self.epochs.append(
            {
                "epoch": epoch + 1,
                "seconds": seconds,
                "time": now,
                "samples": samples,
                "updates": updates,
                "samples_per_second": samples / seconds if seconds > 0 else None,
            }
        )
        for name in logs:
            self.metrics.setdefault(name, [None] * (len(self.epochs) - 1))
        for name, values in self.metrics.items():
            values.append(logs.get(name))

    def add_validation(self, epoch: int, updates: int, results: dict[str, float]) -> None:
        """Record a validation."""
        self.validations.append(
            {"epoch": epoch + 1, "updates": updates, "time": self.seconds, **results}
        )

    def add_worker(self, rank: int, totals: dict[str, Any]) -> None:
        """Record the totals of a worker, with its events; workers are added in rank order."""
        self._events[rank] = totals["events"]
        staleness = Counter(dict(totals["staleness"]))
        self.staleness += staleness
        counts = {"rank": rank, "samples": totals["samples"], "updates": staleness.total()}
        self.workers.append({**counts, **totals["seconds"]})

    def as_dict(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the JSON file, with the arguments of the training."""
        return {
            "multiverso": __version__,
            "args": arguments,
            "first_epoch": self.first_epoch + 1,
            "history": self.metrics,
            "epochs": self.epochs,
            "validations": self.validations,
            "staleness": {str(number): count for number, count in sorted(self.staleness.items())},
            "workers": self.workers,
            "train_time": self.epochs[-1]["time"] if self.epochs else 0.0,
        }

    def trace(self) -> dict[str, Any]:
        """Return what the workers did in the Trace Event Format, which Chrome and Perfetto show."""
        start = min((events[0][1] for events in self._events.values() if events), default=0.0)
        trace: list[dict[str, Any]] = []
        for rank, events in self._events.items():
            process = {"name": f"rank {rank}"}
            trace.append({"name": "process_name", "ph": "M", "pid": rank, "args": process})
            for activity, begin, duration in events:
                times = {"ts": round((begin - start) * 1e6, 3), "dur": round(duration * 1e6, 3)}
                trace.append({"name": activity, "ph": "X", "pid": rank, "tid": 0, **times})
        return {"traceEvents": trace, "displayTimeUnit": "ms"}


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: null for numbers that are not finite, and text for foreign types."""
    # Python writes NaN and infinities as names that JSON lacks, and can read them as null.
    written = json.dumps(value, default=str)
    text = json.dumps(json.loads(written, parse_constant=lambda name: None), indent=2)
    with files.replacing(path) as file:
        file.write((text + "\n").encode())


def plot(histories: Sequence[str], output: str) -> list[Path]:
    """Draw four plots, each with all histories of `multiverso-learn train`; return their paths.

    If no history has an accuracy, those of the accuracy show the loss.
    """
    history_of_path = {path: _load(path) for path in dict.fromkeys(histories)}
    with needs("multiverso-learn plot", matplotlib="learn"):
        # The import takes long, so unusable histories are reported before it.
        from matplotlib.figure import Figure

    with as_input_error(f"cannot create the folder {output}", OSError, ValueError):
        folder = Path(places.path(output, "output"))
        folder.mkdir(parents=True, exist_ok=True)
    metric = _plotted_metric(history_of_path.values())
    written = []
    for name, x_label, y_label in (
        ("accuracy_by_epoch", "epoch", metric),
        ("accuracy_by_time", "seconds", metric),
        ("time_by_epoch", "epoch", "seconds per epoch"),
        ("staleness", "staleness (updates by other workers)", "share of updates"),
    ):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for index, (label, history) in enumerate(_labeled(history_of_path).items()):
            color = f"C{index % 10}"  # matplotlib's names of its ten default colors
            if name.startswith("accuracy"):
                _draw_curves(axes, label, history, metric, name.removeprefix("accuracy_by_"), color)
                continue
            if name == "staleness":
                x, heights = _staleness(history)
            else:
                x, heights = _column(history, "epoch"), _column(history, "seconds")
            width = 0.8 / len(history_of_path)  # Neighboring x are 1 apart: a fifth is left free.
            shift = (index - (len(history_of_path) - 1) / 2) * width
            axes.bar([center + shift for center in x], heights, width, color=color, label=label)
        if name == "time_by_epoch":
            axes.margins(y=0.25)  # room for the legend above the bars
        axes.set(xlabel=x_label, ylabel=y_label, axisbelow=True)
        axes.grid(visible=True, alpha=0.3)
        if name != "accuracy_by_time":
            axes.locator_params(axis="x", integer=True)
        axes.legend(fontsize="small")
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=150)
        written.append(path)
    return written


def _draw_curves(axes: Any, label: str, history: Any, metric: str, x_key: str, color: str) -> None:
    """Draw the metric by `x_key`, "epoch" or "time": dashed for training, solid for validation."""
    for prefix, style in (("", "--"), ("val_", "-")):
        if values := history["history"].get(prefix + metric):
            # The lists of an edited history may differ in length; the common part is drawn.
            points = zip(_column(history, x_key), values, strict=False)
            drawn = [(x, value) for x, value in points if value is not None]
            axes.plot(
                [x for x, _ in drawn],
                [value for _, value in drawn],
                style,
                color=color,
                marker="o",
                markersize=3 + 2 * bool(prefix),
                linewidth=1 + 0.5 * bool(prefix),
                label=f"{label}, {'validation' if prefix else 'training'}",
            )


def _column(history: Any, key: str) -> list[float]:
    return [epoch[key] for epoch in history["epochs"]]


def _staleness(history: Any) -> tuple[list[float], list[float]]:
    """Return each staleness that occurs, and its share of the updates."""
    counts = sorted((int(staleness), count) for staleness, count in history["staleness"].items())
    total = sum(count for _, count in counts) or 1
    return [staleness for staleness, _ in counts], [count / total for _, count in counts]


def _plotted_metric(histories: Any) -> str:
    names = [name for history in histories for name in history["history"]]
    return next((name for name in names if "accuracy" in name and name[:4] != "val_"), "loss")


def _labeled(history_of_path: dict[str, Any]) -> dict[str, Any]:
    """Return the histories by their labels: short names if these are unique, else the paths."""
    names = [Path(path).stem.removesuffix("_history") for path in history_of_path]
    labels = names if len(set(names)) == len(names) else list(history_of_path)
    return dict(zip(labels, history_of_path.values(), strict=True))


def _load(path: str) -> Any:
    text = read_text(path)
    wanted = "a history that multiverso-learn train has written"
    with as_input_error(f"cannot use {path}: expected {wanted}"):
        history = json.loads(text)
        # This is what the plots use; the error of the first part that is missing names it.
        _plotted_metric([history])
        _staleness(history)
        for key in ("epoch", "time", "seconds"):
            sum(_column(history, key))
    return history
