"""Reports of runs as JSON, as tables on the terminal and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiverso._commands._text_table import lines_of

if TYPE_CHECKING:
    from bars import Verdict
    from comparisons import Case

_BYTES = 4  # of an element
#: The operations that are measured at several sizes.
_PLOTTED = ("get", "add", "add_get", "round", "aggregate")


def to_json(cases: list[Case], verdicts: list[Verdict], ranks: int) -> dict[str, Any]:
    """Return one run for JSON: every sample, the medians, the p99 and the speeds.

    Times are in seconds. The ``speed`` of a series is Multiverso's speed relative to the series, of
    all workers together, as the median ratio of two samples of a round; ``speed_at_best`` compares
    the shortest samples. The ``interval`` of a bar is a 95 % confidence interval for ``measured``.
    """
    return {
        "ranks": ranks,
        "cases": [
            {
                "operation": case.operation,
                "size": case.size,
                "series": [
                    {
                        **asdict(series),
                        "median": series.median,
                        "p99": series.p99,
                        "speed": case.ours.speed_against(series),
                        "speed_at_best": case.ours.speed_at_best(series),
                    }
                    for series in case.series
                ],
            }
            for case in cases
        ],
        "bars": [
            {
                **asdict(verdict.bar),
                "text": verdict.bar.text,
                "measured": verdict.speed,
                "interval": verdict.interval,
                "passed": verdict.passed,
            }
            for verdict in verdicts
        ],
    }


def _time_text(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.2f} ms"


def _case_rows(case: dict[str, Any]) -> list[list[str]]:
    ours, *references = case["series"]
    speed = case["size"] * _BYTES * ours["workers"] / ours["median"] / 1e9
    rows = []
    for index, reference in enumerate(references or [None]):
        left = [
            case["operation"],
            f"{case['size']:,}" if case["size"] else "",
            _time_text(ours["median"]),
            _time_text(ours["p99"]),
            f"{speed:.1f}" if case["size"] else "",
        ]
        right = ["no reference", "", "", "", ""]
        if reference is not None:
            right = [
                reference["name"],
                _time_text(reference["median"]),
                _time_text(reference["p99"]),
                f"{reference['speed']:.2f}",
                f"{reference['speed_at_best']:.2f}",
            ]
        rows.append((left if index == 0 else [""] * 5) + right)
    return rows


def print_environment(report: dict[str, Any]) -> None:
    """Print the environment and the notes of a report."""
    known = report["environment"]
    print(f"{known['cores']} cores, {known['cpu']}, {known['mpi'] or 'without MPI'}")
    for note in report["notes"]:
        print(f"note: {note}")


def print_table(title: str, columns: Sequence[str], rows: list[list[str]], texts: int = 1) -> None:
    """Print a table, in which the first `texts` columns have texts and the others numbers."""
    numbers = range(texts, len(columns))
    print("", title, *lines_of(columns, rows, numbers), sep="\n")


def show(report: dict[str, Any]) -> None:
    """Print the runs and the bars of a report, which has the content of the JSON file."""
    print_environment(report)
    columns = ("operation", "float32", "median", "p99", "GB/s", "reference", "median", "p99")
    for run in report["runs"]:
        workers = "1 worker" if run["ranks"] == 1 else f"{run['ranks']} workers at once"
        title = f"{workers}: time per call, and speed relative to the reference"
        rows = [row for case in run["cases"] for row in _case_rows(case)]
        print_table(title, (*columns, "speed", "at best"), rows)
    rows = [
        [
            bar["text"],
            f">= {bar['speed']:.3f}",
            f"{bar['measured']:.3f}",
            " to ".join(f"{bound:.3f}" for bound in bar["interval"]),
            "PASS" if bar["passed"] else "below",
        ]
        for run in report["runs"]
        for bar in run["bars"]
    ]
    if rows:
        title = "Bars: speed relative to the reference"
        print_table(title, ("case", "bar", "measured", "95 %", ""), rows)


def plot(report: dict[str, Any], file: Path) -> None:
    """Plot the speed of each operation over the size, with one row of panels per run.

    The suffix of the file selects the format.
    """
    from matplotlib.figure import Figure

    measured = {case["operation"] for run in report["runs"] for case in run["cases"]}
    operations = [name for name in _PLOTTED if name in measured]
    colors: dict[str, int] = {}  # one for each reference, in every panel
    shape = (len(report["runs"]), len(operations))
    figure = Figure(figsize=(5 * shape[1], 3.6 * shape[0]))
    panels = figure.subplots(*shape, squeeze=False, sharex=True)
    for row, run in zip(panels, report["runs"], strict=True):
        for axes, operation in zip(row, operations, strict=True):
            lines: dict[str, list[tuple[int, float]]] = {}
            for case in run["cases"]:
                if case["operation"] == operation:
                    for series in case["series"]:
                        rate = case["size"] * _BYTES * series["workers"] / series["median"] / 1e9
                        lines.setdefault(series["name"], []).append((case["size"], rate))
            for name, points in lines.items():
                name_without_count = name.lstrip("0123456789 ").removesuffix("s")
                color = f"C{colors.setdefault(name_without_count, len(colors))}"
                axes.loglog(*zip(*points, strict=True), marker="o", label=name, color=color)
            axes.set_title(f"{operation}, {run['ranks']} worker{'s' if run['ranks'] > 1 else ''}")
            axes.set_xlabel("float32 elements")
            axes.set_ylabel("GB/s of all workers")
            axes.grid(visible=True, which="both", alpha=0.3)
            axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def plot_bars(report: dict[str, Any], file: Path) -> None:
    """Plot the speed of every candidate in each case as bars, with one panel per run.

    The suffix of the file selects the format.
    """
    from matplotlib.figure import Figure

    runs = report["runs"]
    names = {
        series["name"]: 0 for run in runs for case in run["cases"] for series in case["series"]
    }
    colors = {name: f"C{index}" for index, name in enumerate(names)}
    num_bars = max(sum(len(case["series"]) + 1 for case in run["cases"]) for run in runs)
    figure = Figure(figsize=(9, 0.22 * num_bars * len(runs) + 1.2))
    panels = figure.subplots(len(runs), 1, squeeze=False)[:, 0]
    for axes, run in zip(panels, runs, strict=True):
        place, ticks = 0, []
        for case in run["cases"]:
            first = place
            for series in case["series"]:
                rate = case["size"] * series["workers"] / series["median"] / 1e6
                axes.barh(place, rate, color=colors[series["name"]], label=series["name"])
                place += 1
            text = f"{case['operation']},\n{case['size']:,} elements"
            ticks.append(((first + place - 1) / 2, text))
            place += 1
        axes.set_yticks(*zip(*ticks, strict=True), fontsize="small")
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.grid(visible=True, axis="x", which="both", alpha=0.3)
        axes.set_title(f"{run['ranks']} worker{'s' if run['ranks'] > 1 else ''}")
        axes.set_xlabel("million elements per second, all workers")
        handles, labels = axes.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True))
        axes.legend(shown.values(), shown.keys(), fontsize="small", loc="best")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
