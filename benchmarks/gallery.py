"""Run examples on 1, 2 and 4 processes, and draw their errors for the gallery in docs/examples.md.

    python benchmarks/gallery.py torch/digits.py keras/cnn_digits.py --folder docs/images

The program prints, for each run, the processor time of the whole job with its imports, divided by
the number of processes: about what the run takes with a core for each process. It draws the
example's validation error over the epochs, if the example reports it, as NAME.png in the folder,
where NAME is the example with underscores. With --speed FILE it draws the accuracy over the seconds
of training instead, over several runs of torch/digits.py.

    python benchmarks/gallery.py torch/digits.py --speed docs/images/digits_speed.png
"""

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WORKERS = (1, 2, 4)
RUNS = 9  # for --speed, each with another seed
STYLES = ("o-", "s--", "^:")  # the lines often meet, and not everyone sees their colors
TIMEOUT = 1800  # seconds for one job


def run(example, workers, *options):
    """Run an example; return the seconds for each process, and its report."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        launcher = [sys.executable, "-m", "multiverso", "run", "--no-mpi", "-np", str(workers)]
        command = [*launcher, str(EXAMPLES / example), "--json", str(report), *options]
        subprocess.run(command, check=True, timeout=TIMEOUT, stdout=subprocess.DEVNULL)
        result = json.loads(report.read_text("utf-8"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds / workers, result


def errors_of(result):
    """Return the error after each epoch, from the histories that the examples report."""
    history = result.get("history", [])
    if isinstance(history, dict):  # of Keras
        return [1 - accuracy for accuracy in history.get("val_accuracy", [])]
    return [entry[1] if isinstance(entry, list) else entry for entry in history]


def speed_of(results):
    """Return the median seconds and the mean accuracy after each epoch of several runs."""
    times = [[*itertools.accumulate(result["epoch_seconds"])] for result in results]
    accuracies = [[1 - error for error in errors_of(result)] for result in results]
    seconds = [*map(statistics.median, zip(*times, strict=True))]
    return seconds, [*map(statistics.fmean, zip(*accuracies, strict=True))]


def draw_speed(speeds, path):
    """Draw the accuracy over the seconds of training, one line for each number of workers."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 3), layout="constrained")
    axes = figure.subplots()
    for (workers, (seconds, accuracies)), style in zip(speeds.items(), STYLES, strict=False):
        label = f"{workers} worker{'s' if workers > 1 else ''}"
        axes.plot(seconds, [100 * accuracy for accuracy in accuracies], style, label=label)
    axes.set(xlabel="seconds of training", ylabel="validation accuracy, %")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=160)


def draw(errors, path):
    """Draw the errors over the epochs, one line for each number of workers."""
    from matplotlib.figure import Figure

    figure = Figure((5, 3), layout="constrained")
    axes = figure.subplots()
    for (workers, values), style in zip(errors.items(), STYLES, strict=True):
        label = f"{workers} worker{'s' if workers > 1 else ''}"
        every = max(1, len(values) // 10)
        percent = [100 * value for value in values]
        axes.plot(range(1, len(values) + 1), percent, style, markevery=every, ms=4, label=label)
    axes.set(xlabel="epoch", ylabel="validation error, %")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=160)


def main():
    """Run the examples and draw their errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("examples", nargs="+", help="files of examples/")
    parser.add_argument("--folder", type=Path, default=Path(), help="for the plots (default: here)")
    parser.add_argument("--speed", type=Path, metavar="FILE", help="draw the accuracy over time")
    args = parser.parse_args()
    for example in args.examples if args.speed else ():
        results = {workers: [] for workers in WORKERS}
        # The runs alternate, because the speed of a machine drifts.
        for seed, workers in itertools.product(range(RUNS), WORKERS):
            results[workers].append(run(example, workers, "--seed", str(seed))[1])
        draw_speed({workers: speed_of(some) for workers, some in results.items()}, args.speed)
    for example in () if args.speed else args.examples:
        errors = {}
        for workers in WORKERS:
            seconds, result = run(example, workers)
            errors[workers] = errors_of(result)
            end = f", test error {result['test_error']:.2%}" if "test_error" in result else ""
            print(f"{example} on {workers}: {seconds:.1f} s{end}", flush=True)
        if any(errors.values()):
            name = example.removesuffix(".py").replace("/", "_")
            draw(errors, args.folder / f"{name}.png")


if __name__ == "__main__":
    main()
