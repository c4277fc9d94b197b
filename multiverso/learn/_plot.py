"""``multiverso-learn plot``: plots the histories of training runs as PNG files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiverso._extras import needs
from multiverso.learn._input import InputError, as_input_error, read_text


def plot(histories: Sequence[str], output: str) -> list[Path]:
    """Draw four plots, each with all histories, and return the paths of the plots.

    The plots are ``accuracy_by_epoch.png``, ``accuracy_by_time.png``, ``time_by_epoch.png`` and
    ``staleness.png``. If no history has an accuracy, the first two show the loss.

    `histories` are the paths of JSON files that ``multiverso-learn train`` has written. The folder
    `output` is created if needed. Raises InputError if a file or the folder cannot be used.
    """
    history_of_path = {path: _load(path) for path in dict.fromkeys(histories)}
    with needs("multiverso-learn plot", matplotlib="learn"):
        # The import takes long, so unusable histories are reported before it.
        from matplotlib.figure import Figure

    folder = Path(output)
    with as_input_error(f"cannot create the folder {folder}", OSError):
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
    with as_input_error(f"cannot use {path}", ValueError):
        history = json.loads(text)
    try:
        types = [type(history[key]) for key in ("history", "epochs", "staleness")]
        is_history = types == [dict, list, dict] and all(
            isinstance(epoch[key], int | float)
            for epoch in history["epochs"]
            for key in ("epoch", "time", "seconds")
        )
    except (KeyError, TypeError):
        is_history = False
    if not is_history:
        raise InputError(
            f"cannot use {path}: expected a history that multiverso-learn train has written"
        )
    return history
