"""Run examples on 1, 2 and 4 processes, and draw their errors for the gallery in docs/examples.md.

    python benchmarks/gallery.py torch/digits.py keras/cnn_digits.py --folder docs/images

The program prints, for each run, the processor time of the whole job with its imports, divided by
the number of processes: about what the run takes with a core for each process. It draws the
example's validation error over the epochs, if the example reports it, as NAME.png in the folder,
where NAME is the example with underscores.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WORKERS = (1, 2, 4)
STYLES = ("o-", "s--", "^:")  # the lines often meet, and not everyone sees their colours
TIMEOUT = 1800  # seconds for one job


def run(example, workers):
    """Run an example; return the seconds for each process, and its report."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        launcher = [sys.executable, "-m", "multiverso", "run", "--no-mpi", "-np", str(workers)]
        command = [*launcher, str(EXAMPLES / example), "--json", str(report)]
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
    args = parser.parse_args()
    for example in args.examples:
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
