"""``multiverso-learn plot``: draws histories of trainings as PNG files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiverso.learn._input import InputError, as_input_error, read_text


def plot(histories: Sequence[str], output: str) -> list[Path]:
    """Draw all histories in each of four pictures, and return the paths of the pictures.

    The pictures are ``accuracy_by_epoch.png``, ``accuracy_by_time.png``, ``time_by_epoch.png`` and
    ``staleness.png``. If no history has an accuracy, the first two show the loss.

    Parameters
    ----------
    histories : sequence of path
        JSON files that ``multiverso-learn train`` has written.
    output : path
        The folder for the pictures, created if needed.

    Raises
    ------
    InputError
        If a file is not such a history, or the folder cannot be created.

    """
    found = {name: _load(name) for name in dict.fromkeys(histories)}
    from matplotlib.figure import Figure

    folder = Path(output)
    with as_input_error(f"cannot create the folder {folder}", OSError):
        folder.mkdir(parents=True, exist_ok=True)
    quantity = _quantity(found.values())
    written = []
    for name, x_label, y_label in (
        ("accuracy_by_epoch", "epoch", quantity),
        ("accuracy_by_time", "seconds", quantity),
        ("time_by_epoch", "epoch", "seconds per epoch"),
        ("staleness", "updates of others in between", "share of updates"),
    ):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for place, (label, history) in enumerate(_labeled(found).items()):
            color = f"C{place % 10}"
            if name.startswith("accuracy"):
                x = _column(history, name.removeprefix("accuracy_by_"))
                _draw_curves(axes, label, history["history"], quantity, x, color)
                continue
            if name == "staleness":
                x, heights = _staleness(history)
            else:
                x, heights = _column(history, "epoch"), _column(history, "seconds")
            width = 0.8 / len(found)
            shift = (place - (len(found) - 1) / 2) * width
            axes.bar([each + shift for each in x], heights, width, color=color, label=label)
        if name == "time_by_epoch":
            axes.margins(y=0.25)  # This leaves room for the legend.
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(visible=True, alpha=0.3)
        axes.set_axisbelow(True)
        if name != "accuracy_by_time":
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize="small")
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=150)
        written.append(path)
    return written


def _draw_curves(
    axes: Any, label: str, metrics: Any, quantity: str, x: Sequence[float], color: str
) -> None:
    """Draw the curves of the training thin and dashed, and those of the validation solid."""
    for prefix, style in (("", "--"), ("val_", "-")):
        if values := metrics.get(prefix + quantity):
            points = [(at, y) for at, y in zip(x, values, strict=False) if y is not None]
            axes.plot(
                *zip(*points, strict=True) if points else ([], []),
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
    found = sorted((int(late), number) for late, number in history["staleness"].items())
    total = sum(number for _, number in found) or 1
    return [late for late, _ in found], [number / total for _, number in found]


def _quantity(histories: Any) -> str:
    names = [name for history in histories for name in history["history"]]
    return next((name for name in names if "accuracy" in name and name[:4] != "val_"), "loss")


def _labeled(found: dict[str, Any]) -> dict[str, Any]:
    """Return the histories by short names if the names are unique, else by path."""
    short = [Path(name).stem.removesuffix("_history") for name in found]
    names = short if len(set(short)) == len(short) else list(found)
    return dict(zip(names, found.values(), strict=True))


def _load(name: str) -> Any:
    text = read_text(name)
    with as_input_error(f"cannot use {name}", ValueError):
        history = json.loads(text)
    try:
        kinds = [type(history[key]) for key in ("history", "epochs", "staleness")]
        is_history = kinds == [dict, list, dict] and all(
            isinstance(each[key], int | float)
            for each in history["epochs"]
            for key in ("epoch", "time", "seconds")
        )
    except (KeyError, TypeError):
        is_history = False
    if not is_history:
        raise InputError(
            f"cannot use {name}: expected a history that multiverso-learn train has written"
        )
    return history
