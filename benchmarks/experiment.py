"""Compare the accuracy and the speed of training by several workers with those by one.

    python benchmarks/experiment.py digits         # a small network on digits, in both modes
    python benchmarks/experiment.py resnet         # a residual network in Lasagne
    python benchmarks/experiment.py keras-resnet   # a residual network in Keras on $KERAS_BACKEND

The program runs examples under mpirun, prints a table, and writes a JSON report and three plots:
accuracy_epoch.png, accuracy_time.png and time_epoch.png. All runs of an experiment see the same
number of samples. The name of a run has the number of Multiverso sessions and of processes: 0M-1P
is one process without Multiverso, 1M-2P two with it. Each process has one core and one thread.
Unknown options, such as --epochs 5, go to the example.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import environment
import mpirun_jobs

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DIGITS = EXAMPLES / "theano" / "cnn.py"
RESNETS = {
    "resnet": EXAMPLES / "theano" / "lasagne" / "Deep_Residual_Learning_CIFAR-10.py",
    "keras-resnet": EXAMPLES / "keras" / "resnet_cifar10.py",
}
PINNED = Path(__file__).resolve().with_name("pinned.py")
POINT = 0.01  # one percentage point of accuracy

#: The bars of digits: largest difference in accuracy from one process, in percentage points.
ASYNC_POINTS, SYNC_POINTS = 1.0, 0.5


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run: its name, number of processes and options."""

    name: str
    ranks: int
    options: tuple[str, ...] = ()


def make_plans(experiment: str, workers: int) -> tuple[Path, list[Plan]]:
    """Return the program of an experiment and its runs; the first is the reference."""
    if experiment == "digits":
        parallel = f"1M-{workers}P"
        return DIGITS, [
            Plan("1M-1P", 1),
            Plan(f"{parallel} async", workers),
            Plan(f"{parallel} sync", workers, ("--sync",)),
            Plan(f"{parallel} sync, again", workers, ("--sync",)),
        ]
    return RESNETS[experiment], [
        Plan("0M-1P", 1, ("--plain", "--test-each")),
        Plan("1M-1P", 1, ("--test-each",)),
        Plan(f"1M-{workers}P, freq 1", workers, ("--test-each", "--freq", "1")),
        Plan(f"1M-{workers}P, freq 3", workers, ("--test-each", "--freq", "3")),
    ]


def summarize(plan: Plan, result: dict[str, Any]) -> dict[str, Any]:
    """Return one run for the report.

    Accuracies are fractions. `accuracies` and `seconds` have one value for each epoch: the accuracy
    on held-out images and the time of training alone.
    """
    history = result["history"]
    if isinstance(history[0], dict):  # from the residual network
        errors = [epoch["test_error"] for epoch in history]
        seconds = [epoch["seconds"] for epoch in history]
    else:
        errors = [error for _, error in history]
        seconds = result["epoch_seconds"]
    return {
        **dataclasses.asdict(plan),
        "updates": result["updates"],
        "accuracy": 1 - result["test_error"],
        "accuracies": [1 - error for error in errors],
        "seconds": seconds,
        "seconds_per_epoch": statistics.median(seconds),
        "history": history,
        "data": result.get("data", "digits"),
        "backend": result.get("backend"),
    }


def compare(experiment: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdicts on the bars of digits; the other experiments have no bars."""
    if experiment != "digits":
        return []
    alone, asynchronous, sync, repeated = runs

    def near(run: dict[str, Any], points: float) -> dict[str, Any]:
        difference = abs(run["accuracy"] - alone["accuracy"]) / POINT
        return {
            "text": f"{run['name']}: within {points} points of one process",
            "measured": f"{difference:.2f} points",
            # The tolerance only absorbs rounding: differences are multiples of one image.
            "passed": difference <= points + 1e-9,
        }

    return [
        near(asynchronous, ASYNC_POINTS),
        near(sync, SYNC_POINTS),
        {
            "text": "two sync runs: bitwise identical histories",
            "measured": "equal" if sync["history"] == repeated["history"] else "different",
            "passed": sync["history"] == repeated["history"],
        },
    ]


def to_markdown(runs: list[dict[str, Any]]) -> str:
    """Return the runs as a Markdown table.

    The speed-up is relative to the first run. The overhead is the additional time of one process
    with Multiverso relative to one without, so only the run 1M-1P beside 0M-1P has one.
    """
    base = runs[0]
    lines = [
        "| run | accuracy | seconds per epoch | speed-up | overhead |",
        "|---|---:|---:|---:|---:|",
    ]
    for run in runs:
        speed_up = base["seconds_per_epoch"] / run["seconds_per_epoch"]
        is_overhead = run["ranks"] == 1 and base["name"].startswith("0M") and run is not base
        overhead = f"{1 / speed_up - 1:+.1%}" if is_overhead else ""
        lines.append(
            f"| {run['name']} | {run['accuracy']:.2%} | {run['seconds_per_epoch']:.3f}"
            f" | {speed_up:.2f} | {overhead} |"
        )
    return "\n".join(lines)


def plot(runs: list[dict[str, Any]], folder: Path) -> None:
    """Plot accuracy over epochs, accuracy over time and time over epochs into `folder`."""
    from matplotlib.figure import Figure

    styles = ("-", "--", "-.", ":")  # so that lines of equal runs can be told apart
    for name, x_name, y_name in (
        ("accuracy_epoch", "epoch", "accuracy"),
        ("accuracy_time", "seconds of training", "accuracy"),
        ("time_epoch", "epoch", "seconds of training"),
    ):
        figure = Figure(figsize=(6.4, 4.2))
        axes = figure.subplots()
        for run, style in zip(runs, styles, strict=True):
            epochs = range(1, len(run["seconds"]) + 1)
            elapsed = [sum(run["seconds"][:count]) for count in epochs]
            values = {
                "epoch": epochs,
                "accuracy": run["accuracies"],
                "seconds of training": elapsed,
            }
            axes.plot(values[x_name], values[y_name], style, label=run["name"])
        axes.set_xlabel(x_name)
        axes.set_ylabel(y_name)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=120)


def parse_arguments() -> argparse.Namespace:
    """Return the command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("experiment", choices=("digits", *RESNETS))
    option("--workers", type=int, help="of the parallel runs (default 4 for digits, else 2)")
    option("--folder", type=Path, default=Path(), help="for the report and plots (default: here)")
    option("--limit", type=float, default=7200.0, help="seconds for each run")
    args, args.options = parser.parse_known_args()
    if args.workers is None:
        args.workers = 4 if args.experiment == "digits" else 2
    if args.workers < 2:
        parser.error(f"argument --workers: expected an integer >= 2, received {args.workers}")
    return args


def main() -> int:
    """Run the experiment and report; return 1 if it misses a bar."""
    args = parse_arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    program, plans = make_plans(args.experiment, args.workers)
    runs = []
    for plan in mpirun_jobs.progress(plans, is_master=True):
        arguments = [str(program), *args.options, *plan.options]
        result = mpirun_jobs.launch(PINNED, plan.ranks, arguments, args.limit, extra_arguments=())
        runs.append(summarize(plan, result))
    verdicts = compare(args.experiment, runs)
    report = {
        "environment": environment.describe(None),
        "experiment": args.experiment,
        "options": args.options,
        "runs": runs,
        "bars": verdicts,
    }
    (args.folder / f"experiment_{args.experiment}.json").write_text(json.dumps(report) + "\n")
    plot(runs, args.folder)
    print(to_markdown(runs))
    for verdict in verdicts:
        result = "PASS" if verdict["passed"] else "below"
        print(f"{result}: {verdict['text']}: {verdict['measured']}")
    return 0 if all(verdict["passed"] for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
