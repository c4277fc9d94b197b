"""``multiverso-learn plot``: what histories of trainings show, as PNGs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from multiverso.learn._errors import InputError

__all__ = ["plot"]


def plot(histories: Sequence[str], output: str) -> list[Path]:
    """Draw histories, all of them in each picture, and return the paths of the pictures.

    They are ``accuracy_by_epoch.png``, ``accuracy_by_time.png``, ``time_by_epoch.png`` and
    ``staleness.png``. Where a history has no accuracy, its loss is drawn in its place.

    Parameters
    ----------
    histories : sequence of path
        JSON files that ``multiverso-learn train`` has written.
    output : path
        The folder for the pictures, made here if it is not there.

    Raises
    ------
    InputError
        If a file is no such history, or the folder cannot be made.

    """
    found = {name: _load(name) for name in dict.fromkeys(histories)}
    from matplotlib.figure import Figure

    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make the folder {folder}: {error.strerror}"
        raise InputError(msg) from error
    quantity = _quantity(found.values())
    drawings: dict[str, tuple[Callable[..., None], str, str]] = {
        "accuracy_by_epoch": (_by_epoch, "epoch", quantity),
        "accuracy_by_time": (_by_time, "seconds", quantity),
        "time_by_epoch": (_time, "epoch", "seconds per epoch"),
        "staleness": (_staleness, "updates of others in between", "share of updates"),
    }
    written = []
    for name, (draw, x_label, y_label) in drawings.items():
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for place, (label, history) in enumerate(_labelled(found).items()):
            draw(axes, label, history, quantity, place, len(found))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(visible=True, alpha=0.3)
        axes.set_axisbelow(True)
        if name.endswith("epoch") or name == "staleness":
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize="small")
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=150)
        written.append(path)
    return written


def _by_epoch(axes: Any, label: str, history: Any, quantity: str, place: int, _: int) -> None:
    _curves(axes, label, history, quantity, place, [each["epoch"] for each in history["epochs"]])


def _by_time(axes: Any, label: str, history: Any, quantity: str, place: int, _: int) -> None:
    _curves(axes, label, history, quantity, place, [each["time"] for each in history["epochs"]])


def _curves(
    axes: Any, label: str, history: Any, quantity: str, place: int, x: Sequence[float]
) -> None:
    """Draw training thin and dashed, validation solid, in the colour of the history."""
    for prefix, style in (("", "--"), ("val_", "-")):
        values = history["history"].get(prefix + quantity)
        if values:
            points = [(at, y) for at, y in zip(x, values, strict=False) if y is not None]
            axes.plot(
                *zip(*points, strict=True) if points else ([], []),
                style,
                color=f"C{place % 10}",
                marker="o",
                markersize=3 + 2 * bool(prefix),
                linewidth=1 + 0.5 * bool(prefix),
                label=f"{label}, {'validation' if prefix else 'training'}",
            )


def _time(axes: Any, label: str, history: Any, _: str, place: int, count: int) -> None:
    width = 0.8 / count
    x = [each["epoch"] + (place - (count - 1) / 2) * width for each in history["epochs"]]
    seconds = [each["seconds"] for each in history["epochs"]]
    axes.bar(x, seconds, width, color=f"C{place % 10}", label=label)
    axes.margins(y=0.25)  # for the legend


def _staleness(axes: Any, label: str, history: Any, _: str, place: int, count: int) -> None:
    width = 0.8 / count
    found = sorted((int(late), number) for late, number in history["staleness"].items())
    total = sum(number for _, number in found) or 1
    x = [late + (place - (count - 1) / 2) * width for late, _ in found]
    shares = [number / total for _, number in found]
    axes.bar(x, shares, width, color=f"C{place % 10}", label=label)


def _quantity(histories: Any) -> str:
    names = [name for history in histories for name in history["history"]]
    return next((name for name in names if "accuracy" in name and name[:4] != "val_"), "loss")


def _labelled(found: dict[str, Any]) -> dict[str, Any]:
    """Return the histories under short names where these are different."""
    short = [Path(name).stem.removesuffix("_history") for name in found]
    names = short if len(set(short)) == len(short) else list(found)
    return dict(zip(names, found.values(), strict=True))


def _load(name: str) -> Any:
    try:
        history = json.loads(Path(name).read_text("utf-8"))
    except OSError as error:
        msg = f"cannot read {name}: {error.strerror}"
        raise InputError(msg) from error
    except ValueError as error:
        msg = f"cannot use {name}: it is no JSON"
        raise InputError(msg) from error
    try:
        kinds = [type(history[key]) for key in ("history", "epochs", "staleness")]
        right = kinds == [dict, list, dict] and all(
            isinstance(each[key], int | float)
            for each in history["epochs"]
            for key in ("epoch", "time", "seconds")
        )
    except (KeyError, TypeError):
        right = False
    if not right:
        msg = f"cannot use {name}: expected a history that multiverso-learn train has written"
        raise InputError(msg)
    return history
