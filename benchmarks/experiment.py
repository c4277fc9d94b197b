"""Whether training on several workers ends as well as on one, and how much sooner.

    python benchmarks/experiment.py digits         # a small network on digits, both modes
    python benchmarks/experiment.py resnet         # a residual network of Lasagne, with and without
    python benchmarks/experiment.py keras-resnet   # one of Keras, on the backend of KERAS_BACKEND

It runs the examples under mpirun and writes a table, a report as JSON, and three plots:
accuracy_epoch.png, accuracy_time.png and time_epoch.png. All runs of an experiment see the same
number of samples. The names of runs say whether Multiverso is there and how many processes: 0M-1P
is one process without it, 1M-2P two with it. Each process has one core and one thread. Further
options, such as --epochs 5, are the example's.
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
import launcher

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DIGITS = EXAMPLES / "theano" / "cnn.py"
RESNETS = {
    "resnet": EXAMPLES / "theano" / "lasagne" / "Deep_Residual_Learning_CIFAR-10.py",
    "keras-resnet": EXAMPLES / "keras" / "resnet_cifar10.py",
}
PINNED = Path(__file__).resolve().with_name("pinned.py")
POINT = 0.01  # of the accuracy: one percentage point

#: What digits must hold: how many points from one process in each mode, at most.
ASYNC_POINTS, SYNC_POINTS = 1.0, 0.5


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run: what it is called, how many processes it has, and its options."""

    name: str
    ranks: int
    options: tuple[str, ...] = ()


def plans_of(experiment: str, workers: int) -> tuple[Path, list[Plan]]:
    """Return the program of an experiment and its runs; the first is what others compare with."""
    if experiment == "digits":
        many = f"1M-{workers}P"
        return DIGITS, [
            Plan("1M-1P", 1),
            Plan(f"{many} async", workers),
            Plan(f"{many} sync", workers, ("--sync",)),
            Plan(f"{many} sync, again", workers, ("--sync",)),
        ]
    return RESNETS[experiment], [
        Plan("0M-1P", 1, ("--plain", "--test-each")),
        Plan("1M-1P", 1, ("--test-each",)),
        Plan(f"1M-{workers}P, freq 1", workers, ("--test-each", "--freq", "1")),
        Plan(f"1M-{workers}P, freq 3", workers, ("--test-each", "--freq", "3")),
    ]


def measured(plan: Plan, result: dict[str, Any]) -> dict[str, Any]:
    """Return one run, ready for the report.

    Accuracies are fractions; `accuracies` and `seconds` have one value for each epoch, the first on
    images that are not trained on, the second of training alone.
    """
    history = result["history"]
    if isinstance(history[0], dict):  # the residual network's
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
    """Return what the experiment must hold: text, what was measured, whether it passed."""
    if experiment != "digits":
        return []
    alone, free, in_step, again = runs

    def near(run: dict[str, Any], points: float) -> dict[str, Any]:
        difference = abs(run["accuracy"] - alone["accuracy"]) / POINT
        return {
            "text": f"{run['name']}: within {points} points of one process",
            "measured": f"{difference:.2f} points",
            # Differences are multiples of one image: no rounding makes a bar of it.
            "passed": difference <= points + 1e-9,
        }

    return [
        near(free, ASYNC_POINTS),
        near(in_step, SYNC_POINTS),
        {
            "text": "two sync runs: histories equal to the bit",
            "measured": "equal" if in_step["history"] == again["history"] else "different",
            "passed": in_step["history"] == again["history"],
        },
    ]


def table_of(runs: list[dict[str, Any]]) -> str:
    """Return the runs as a table of Markdown.

    Speed-up is against the first run; overhead is what one process with Multiverso takes longer
    than one without, so it stands only there.
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
    """Draw accuracy over epochs, accuracy over time and time over epochs into `folder`."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    styles = ("-", "--", "-.", ":")  # runs that are equal lie on each other
    for name, across, along in (
        ("accuracy_epoch", "epoch", "accuracy"),
        ("accuracy_time", "seconds of training", "accuracy"),
        ("time_epoch", "epoch", "seconds of training"),
    ):
        figure, axes = plt.subplots(figsize=(6.4, 4.2))
        for run, style in zip(runs, styles, strict=True):
            epochs = range(1, len(run["seconds"]) + 1)
            elapsed = [sum(run["seconds"][:count]) for count in epochs]
            values = {
                "epoch": epochs,
                "accuracy": run["accuracies"],
                "seconds of training": elapsed,
            }
            axes.plot(values[across], values[along], style, label=run["name"])
        axes.set_xlabel(across)
        axes.set_ylabel(along)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=120)
        plt.close(figure)


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("experiment", choices=("digits", *RESNETS))
    option("--workers", type=int, help="of the runs with several (default 4 digits, else 2)")
    option("--folder", type=Path, default=Path(), help="for report and plots (default: here)")
    option("--limit", type=float, default=7200.0, help="seconds for each run")
    args, args.options = parser.parse_known_args()
    if args.workers is None:
        args.workers = 4 if args.experiment == "digits" else 2
    if args.workers < 2:
        parser.error(f"argument --workers: expected 2 or more, received {args.workers}")
    return args


def main() -> int:
    """Run the experiment and report; return 1 if it does not hold what it must."""
    args = parse_arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    program, plans = plans_of(args.experiment, args.workers)
    runs = []
    for plan in launcher.progress(plans, is_master=True):
        arguments = [str(program), *args.options, *plan.options]
        result = launcher.launch(PINNED, plan.ranks, arguments, args.limit, more=())
        runs.append(measured(plan, result))
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
    print(table_of(runs))
    for verdict in verdicts:
        word = "PASS" if verdict["passed"] else "below"
        print(f"{word}: {verdict['text']}: {verdict['measured']}")
    return 0 if all(verdict["passed"] for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
