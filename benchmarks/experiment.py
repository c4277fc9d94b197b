"""Compare the accuracy and the speed of training by several workers with those by one.

    python benchmarks/experiment.py digits         # a small network in PyTorch, on digits
    python benchmarks/experiment.py resnet         # a residual network in Lasagne
    python benchmarks/experiment.py keras-resnet   # a residual network in Keras on $KERAS_BACKEND

The program runs an example under mpirun in every combination of --workers, --modes and --freqs, the
batches between syncs, each with several seeds. All runs of an experiment see the same number of
samples. It prints a table of means over the seeds, and writes a JSON report and three plots:
accuracy_epoch.png, accuracy_time.png and time_epoch.png. Each process has one core and one thread.
Unknown options, such as --epochs 5, go to the example.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import environment
import mpirun_jobs
from options import positive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DIGITS = EXAMPLES / "torch" / "digits.py"
RESNETS = {
    "resnet": EXAMPLES / "theano" / "lasagne" / "Deep_Residual_Learning_CIFAR-10.py",
    "keras-resnet": EXAMPLES / "keras" / "resnet_cifar10.py",
}
MODES = {"async": (), "sync": ("--sync",), "staleness 1": ("--staleness", "1")}
PINNED, REPEATED = (
    Path(__file__).resolve().with_name(f"{name}.py") for name in ("pinned", "repeated")
)
POINT = 0.01  # one percentage point of accuracy

#: The bars of digits, with a sync after each batch: the largest difference of the mean accuracy
#: from that of one process, in percentage points.
POINTS = {"async": 1.0, "sync": 0.5, "staleness 1": 1.0}


@dataclasses.dataclass(frozen=True)
class Plan:
    """One configuration: its name, number of processes, options, mode and batches between syncs.

    The mode is None for the configurations with which all others are compared.
    """

    name: str
    ranks: int
    options: tuple[str, ...] = ()
    mode: str | None = None
    freq: int = 1


def make_plans(
    experiment: str, workers: Sequence[int], modes: Sequence[str], freqs: Sequence[int]
) -> tuple[Path, list[Plan]]:
    """Return the program of an experiment and its configurations; the first is the reference."""
    if experiment == "digits":
        program, plans, common = DIGITS, [Plan("1 worker", 1)], ()
    else:
        program, common = RESNETS[experiment], ("--test-each",)
        plain = Plan("without Multiverso", 1, ("--plain", *common))
        plans = [plain, Plan("1 worker", 1, common)]
    for mode, count, freq in itertools.product(modes, workers, freqs):
        name = f"{count} workers, {mode}" + (f", every {freq} batches" if freq > 1 else "")
        options = (*common, *MODES[mode], "--freq", str(freq))
        plans.append(Plan(name, count, options, mode, freq))
    return program, plans


def summarize(result: dict[str, Any]) -> dict[str, Any]:
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
        "updates": result["updates"],
        "accuracy": 1 - result["test_error"],
        "accuracies": [1 - error for error in errors],
        "seconds": seconds,
        "history": history,
        "data": result.get("data", "digits"),
        "backend": result.get("backend"),
    }


def combine(plan: Plan, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration for the report: the means over its runs, one for each seed.

    Other programs can delay an epoch but not speed it up, so `seconds_per_epoch` is the median over
    the epochs of each one's shortest time.
    """
    seconds = [min(times) for times in zip(*(run["seconds"] for run in runs), strict=True)]
    accuracies = [run["accuracy"] for run in runs]
    return {
        **dataclasses.asdict(plan),
        "accuracy": statistics.fmean(accuracies),
        "spread": (min(accuracies), max(accuracies)),
        "seconds_per_epoch": statistics.median(seconds),
        "seconds": seconds,
        "runs": runs,
    }


def compare(
    experiment: str, configurations: list[dict[str, Any]], repeated: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the verdicts on the bars of digits; the other experiments have no bars.

    `repeated` has a second run of each configuration in sync mode, by name, with the first seed.
    """
    if experiment != "digits":
        return []
    alone, *others = configurations
    verdicts = []
    for other in others:
        if other["freq"] > 1:
            continue
        difference = abs(other["accuracy"] - alone["accuracy"]) / POINT
        points = POINTS[other["mode"]]
        verdicts.append(
            {
                "text": f"{other['name']}: within {points} points of one process",
                "measured": f"{difference:.2f} points",
                "passed": difference <= points,
            }
        )
    for configuration in others:
        if configuration["mode"] != "sync":
            continue
        again = repeated[configuration["name"]]
        is_equal = configuration["runs"][0]["history"] == again["history"]
        verdicts.append(
            {
                "text": f"{configuration['name']}: two runs have bitwise identical histories",
                "measured": "equal" if is_equal else "different",
                "passed": is_equal,
            }
        )
    return verdicts


def to_markdown(configurations: list[dict[str, Any]]) -> str:
    """Return the configurations as a Markdown table.

    The spread is the lowest and the highest accuracy of a seed. The speed-up is relative to the
    first configuration.
    """
    base = configurations[0]
    lines = [
        "| configuration | accuracy | spread | ms per epoch | speed-up |",
        "|---|---:|---:|---:|---:|",
    ]
    for one in configurations:
        speed_up = base["seconds_per_epoch"] / one["seconds_per_epoch"]
        least, most = (100 * accuracy for accuracy in one["spread"])
        lines.append(
            f"| {one['name']} | {one['accuracy']:.2%} | {least:.1f} to {most:.1f}"
            f" | {1e3 * one['seconds_per_epoch']:.1f} | {speed_up:.2f} |"
        )
    return "\n".join(lines)


def curves(configuration: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Return the quantities of the plots, for each epoch a value from each run.

    The accuracy is in percent. The seconds since the start are equal in all runs, like those of
    `combine`: they show how long training takes, not how other programs disturbed single runs.
    """
    runs = configuration["runs"]
    elapsed = itertools.accumulate(configuration["seconds"])
    return {
        "epoch": [[epoch] for epoch in range(1, len(configuration["seconds"]) + 1)],
        "accuracy, %": [
            [100 * value for value in values]
            for values in zip(*(run["accuracies"] for run in runs), strict=True)
        ],
        "seconds of training": [[seconds] for seconds in elapsed],
    }


def plot(configurations: list[dict[str, Any]], folder: Path) -> None:
    """Plot accuracy over epochs, accuracy over time and time over epochs into `folder`.

    There is a panel for each mode. A line is the mean over the seeds, and the band around it
    reaches from the lowest to the highest.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from PIL import Image

    modes = list(dict.fromkeys(one["mode"] for one in configurations if one["mode"]))
    references = [one for one in configurations if one["mode"] is None]
    colors = {one["ranks"]: f"C{index}" for index, one in enumerate(_first_of_each(configurations))}
    for name, x_name, y_name in (
        ("accuracy_epoch", "epoch", "accuracy, %"),
        ("accuracy_time", "seconds of training", "accuracy, %"),
        ("time_epoch", "epoch", "seconds of training"),
    ):
        figure = Figure((5, 0.6 + 2 * len(modes)), layout="constrained")
        panels = figure.subplots(len(modes), squeeze=False, sharex=True, sharey=True)[:, 0]
        for axes, mode in zip(panels, modes, strict=True):
            for one in references + [one for one in configurations if one["mode"] == mode]:
                values = curves(one)
                x, y = [x for (x, *_) in values[x_name]], values[y_name]
                color = colors[one["ranks"]]
                is_dashed = one["freq"] > 1 or "--plain" in one["options"]
                label = one["name"].replace(f", {mode}", "")
                style = "--" if is_dashed else "-"
                axes.plot(x, [statistics.fmean(of) for of in y], style, color=color, label=label)
                bounds = [min(of) for of in y], [max(of) for of in y]
                axes.fill_between(x, *bounds, color=color, alpha=0.15, linewidth=0)
            axes.set_ylabel(y_name)
            axes.set_title(mode)
            axes.grid(visible=True, alpha=0.3)
        panels[0].legend(fontsize="small")  # the colors and styles are those of all panels
        panels[-1].set_xlabel(x_name)
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=x_name == "epoch"))
        picture = io.BytesIO()
        figure.savefig(picture, dpi=130)
        # 64 colors are enough and make the file four times smaller.
        reduced = Image.open(picture).convert("RGB").quantize(64)
        reduced.save(folder / f"{name}.png", optimize=True)


def _first_of_each(configurations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first configuration with each number of processes."""
    return list({one["ranks"]: one for one in reversed(configurations)}.values())[::-1]


def measure(
    program: Path, plans: list[Plan], args: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Run each plan with each seed; return the configurations, and repeated runs in sync mode.

    The plans take turns, so that a change in the speed of the machine affects all of them: with
    each seed there is a job for each number of processes, which runs all of its plans.
    """
    runs: dict[str, list[dict[str, Any]]] = {}
    repeated: dict[str, list[dict[str, Any]]] = {}
    jobs = list(itertools.product(range(args.seeds), sorted({plan.ranks for plan in plans})))
    for seed, ranks in mpirun_jobs.progress(jobs, is_master=True):
        in_job = [plan for plan in plans if plan.ranks == ranks]
        steps = [(plan, runs) for plan in in_job]
        if args.experiment == "digits" and seed == 0:
            steps += [(plan, repeated) for plan in in_job if plan.mode == "sync"]
        options = [[*args.options, *plan.options, "--seed", str(seed)] for plan, _ in steps]
        arguments = [str(REPEATED), str(program), json.dumps(options)]
        limit = args.limit * len(steps)
        results = mpirun_jobs.launch(PINNED, ranks, arguments, limit, extra_arguments=())
        for (plan, into), result in zip(steps, results, strict=True):
            into.setdefault(plan.name, []).append(summarize(result))
    return (
        [combine(plan, runs[plan.name]) for plan in plans],
        {name: again for name, (again,) in repeated.items()},
    )


def parse_arguments() -> argparse.Namespace:
    """Return the command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --seed would mean --seeds instead of the example's option
    )
    number: Callable[[str], Any] = positive(int)
    option = parser.add_argument
    option("experiment", choices=("digits", *RESNETS))
    option("--workers", type=number, nargs="+", help="(default 2 4 for digits, else 2)")
    option("--modes", choices=MODES, nargs="+", help="(default all for digits, else async)")
    option("--freqs", type=number, nargs="+", default=[1, 3], help="(default 1 3)")
    option("--seeds", type=number, help="number of seeds (default 5 for digits, else 1)")
    option("--folder", type=Path, default=Path(), help="for the report and plots (default: here)")
    option("--limit", type=float, default=7200.0, help="seconds for each run")
    args, args.options = parser.parse_known_args()
    is_digits = args.experiment == "digits"
    args.workers = args.workers or ([2, 4] if is_digits else [2])
    args.modes = args.modes or (list(MODES) if is_digits else ["async"])
    args.seeds = args.seeds or (5 if is_digits else 1)
    if min(args.workers) < 2:
        parser.error(f"argument --workers: expected integers >= 2, received {min(args.workers)}")
    return args


def main() -> int:
    """Run the experiment and report; return 1 if it misses a bar."""
    args = parse_arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    program, plans = make_plans(args.experiment, args.workers, args.modes, args.freqs)
    configurations, repeated = measure(program, plans, args)
    verdicts = compare(args.experiment, configurations, repeated)
    report = {
        "environment": environment.describe(None),
        "experiment": args.experiment,
        "options": args.options,
        "configurations": configurations,
        "bars": verdicts,
    }
    (args.folder / f"experiment_{args.experiment}.json").write_text(json.dumps(report) + "\n")
    plot(configurations, args.folder)
    print(to_markdown(configurations))
    for verdict in verdicts:
        result = "PASS" if verdict["passed"] else "below"
        print(f"{result}: {verdict['text']}: {verdict['measured']}")
    return 0 if all(verdict["passed"] for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
