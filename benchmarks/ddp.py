"""Measure training steps with DistributedOptimizer against PyTorch's DistributedDataParallel.

    python benchmarks/ddp.py                                 2 and 4 workers, three models
    python benchmarks/ddp.py --workers 2 --quick             few samples
    python benchmarks/ddp.py --json F --plot F.svg           every sample, and a chart
    mpirun -np 2 python benchmarks/ddp.py --models small     the ranks of this job

All candidates train the same model (dense layers, SGD) on the same batches in the same processes:
DistributedDataParallel (DDP) over gloo, DistributedOptimizer in async and in sync mode, and one
process alone. Each worker has one thread. Samples alternate, because the speed of a machine drifts:
ratios are comparable between runs and machines, times less so. Each sample is the shortest of up to
20 repetitions, because other programs can only delay it. A call in the report is one training step
of every worker. Before the measurement, the program checks that sync mode and DDP, which
average the same gradients, learn the same.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

import multiverso as mv
import report
from comparisons import Case
from environment import describe
from gloo import gloo
from mpirun_jobs import launch_all, progress
from multiverso._mpi.launcher import find_launcher
from multiverso.torch_ext import DistributedOptimizer
from options import deliver, forwarded, make_parser, positive
from ranks import Ranks, Span, find_mpi
from samples import Effort, alternate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Training = Callable[[tuple[int, ...]], AbstractContextManager[tuple[Any, Any]]]

PIXELS, CLASSES = 784, 10
#: The widths of the hidden layers.
MODELS = {"small": (160,), "medium": (800, 800), "large": (3200, 3200)}
BATCH_SIZES = (32, 256)
WORKER_COUNTS = (2, 4)
DDP, ONE, SYNC, ASYNC = "DDP", "one process", "sync", "async"
LEARNING_RATE = 0.1
NUM_BATCHES = 4  # of each worker; they take turns
WARM_UP = 2  # steps
#: Steps are repeated this often, or until they have taken this long together.
MAX_REPEATS, REPEAT_SECONDS = 20, 0.3
CHECKED_STEPS = 20
#: The largest relative difference of losses by rounding. The candidates sum in another order.
TOLERANCE = 1e-3


def build(widths: tuple[int, ...]) -> torch.nn.Module:
    """Return the model of these widths, with the same parameters each time."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise((PIXELS, *widths)):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], CLASSES))


def make_batches(seed: int, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches whose labels a random linear model determines, the same for all seeds."""
    labels_of = torch.randn(PIXELS, CLASSES, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 + seed)
    inputs = [torch.randn(size, PIXELS, generator=generator) for _ in range(NUM_BATCHES)]
    return [(x, (x @ labels_of).argmax(dim=1)) for x in inputs]


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of all candidates."""
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


@contextlib.contextmanager
def one_process(widths: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield a model and an optimizer that exchange nothing."""
    model = build(widths)
    yield model, sgd(model)


@contextlib.contextmanager
def ddp(widths: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield a model whose backward pass averages the gradients of all workers."""
    model = DistributedDataParallel(build(widths))
    yield model, sgd(model)


@contextlib.contextmanager
def multiverso(widths: tuple[int, ...], *, sync: bool) -> Iterator[tuple[Any, Any]]:
    """Yield a model and an optimizer that averages the changes of all workers."""
    with mv.session(sync=sync):
        model = build(widths)
        yield model, DistributedOptimizer(sgd(model), model, average=True)
        mv.barrier()


TRAININGS: dict[str, Training] = {
    DDP: ddp,
    SYNC: functools.partial(multiverso, sync=True),
    ASYNC: functools.partial(multiverso, sync=False),
    ONE: one_process,
}


def train(model: Any, optimizer: Any, batches: list[Any], steps: int) -> None:
    """Make the training steps."""
    for _, (x, y) in zip(range(steps), itertools.cycle(batches), strict=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


class Steps:
    """Training steps by the first `workers` ranks at once."""

    statement = ""

    def __init__(self, name: str, ranks: Ranks, widths: tuple[int, ...], batch_size: int) -> None:
        self.name = name
        self.workers = 1 if name == ONE else ranks.size
        self._ranks = ranks
        self._widths = widths
        self._batches = make_batches(ranks.rank, batch_size)

    def run(self, calls: int) -> Span | None:
        """Make `calls` steps several times with a new model and return the shortest span."""
        ranks = self._ranks
        if ranks.rank >= self.workers:
            return None
        best, shortest, total = None, math.inf, 0.0
        with TRAININGS[self.name](self._widths) as (model, optimizer):
            train(model, optimizer, self._batches, WARM_UP)
            for _ in range(MAX_REPEATS):
                if self.workers > 1:
                    ranks.start()
                begin = time.perf_counter()
                train(model, optimizer, self._batches, calls)
                own = Span(begin, time.perf_counter())
                spans = ranks.gather(own) if self.workers > 1 else [own]
                seconds = max(span.end for span in spans) - min(span.begin for span in spans)
                if seconds < shortest:
                    best, shortest = own, seconds
                total += seconds
                if total > REPEAT_SECONDS:
                    break
        return best

    def losses(self) -> tuple[float, float]:
        """Train; return the loss on the first worker's batches before and after it."""
        reference = make_batches(0, 32)

        def loss(model: Any) -> float:
            with torch.no_grad():
                each = [torch.nn.functional.cross_entropy(model(x), y) for x, y in reference]
            return float(sum(each)) / len(each)

        with TRAININGS[self.name](self._widths) as (model, optimizer):
            before = loss(model)
            train(model, optimizer, self._batches, CHECKED_STEPS)
            if self.name == ASYNC:  # lacks what other workers still add
                mv.barrier()
                optimizer.sync()
            return before, loss(model)


def check(ranks: Ranks, candidates: list[Steps]) -> str:
    """Check that all candidates learn, and DDP and sync mode the same; return the losses as text.

    Raises
    ------
    SystemExit
        If one does not learn, or the two differ by more than rounding.
    """
    losses = {steps.name: steps.losses() for steps in candidates if steps.name != ONE}
    for name, (before, after) in losses.items():
        if not after < before:
            raise SystemExit(f"{name}: expected a loss below {before:.4f}, received {after:.4f}")
    expected, received = losses[DDP][1], losses[SYNC][1]
    if not math.isclose(expected, received, rel_tol=TOLERANCE):
        raise SystemExit(f"expected the same loss, received {expected} (DDP) and {received} (sync)")
    text = ", ".join(f"{after:.4f} ({name})" for name, (_, after) in losses.items())
    return f"{ranks.size} workers, loss after {CHECKED_STEPS} steps: {text}"


def measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this job; return the report on the master, else None."""
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    if ranks.size < 2:
        raise SystemExit("expected two or more ranks, received one")
    torch.set_num_threads(1)
    effort = Effort(options.sample, *((0.1, 3, 51) if options.quick else (1.0, 7, 101)))
    notes, cases = [problem] if problem else [], []
    with gloo(ranks) as (_, without_gloo):
        if without_gloo:
            raise SystemExit(without_gloo)
        configurations = list(itertools.product(options.models, options.batch_sizes))
        for model, batch_size in progress(configurations, ranks.is_master):
            widths = MODELS[model]
            parameters = sum(of.numel() for of in build(widths).parameters())
            candidates = [Steps(name, ranks, widths, batch_size) for name in TRAININGS]
            text = f"{parameters / 1e6:.2g} M, batch {batch_size}"
            notes.append(f"{text}, {check(ranks, candidates)}")
            series = alternate(candidates, ranks, effort, warms=False)
            named = {one.name: one for one in series}
            for mode in (SYNC, ASYNC):
                cases.append(Case(f"{mode}: {text}", 0, [named[mode], named[DDP], named[ONE]]))
    if not ranks.is_master:
        return None
    run = report.to_json(cases, [], ranks.size)
    return {"environment": describe(mpi), "notes": notes, "runs": [run]}


def plot(measured: dict[str, Any], file: Path) -> None:
    """Plot the speed of each mode relative to DDP as bars, with one panel per number of workers.

    It compares the shortest samples. The suffix of the file selects the format.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    runs = measured["runs"]
    bars = sum(len(run["cases"]) for run in runs)
    figure = Figure((5, 1.1 * len(runs) + 0.2 * bars), layout="constrained")
    panels = figure.subplots(len(runs), squeeze=False, sharex=True)[:, 0]
    for axes, run in zip(panels, runs, strict=True):
        ticks = {}
        for index, case in enumerate(run["cases"]):
            mode, text = case["operation"].split(": ")
            place = 1.2 * (index // 2) + 0.45 * (mode == ASYNC)
            ticks.setdefault(text.replace(", ", "\n"), place + 0.225)
            ours, reference = case["series"][:2]
            color = "#3546a5" if mode == ASYNC else "#8c9ae0"
            speed = reference["speed_at_best"]
            axes.barh(place, speed, 0.42, color=color, label=mode)
            times = " / ".join(f"{1e3 * min(one['seconds']):.3g}" for one in (ours, reference))
            where = max(speed, 1) + 0.05  # right of the line
            axes.text(where, place, f"{times} ms", va="center", fontsize=8)
        axes.axvline(1, color="#c2410c", linewidth=1.2)
        axes.set_yticks(list(ticks.values()), list(ticks), fontsize=8)
        axes.invert_yaxis()
        axes.set_title(f"{run['ranks']} workers: speed of a step, DDP = 1", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    figure.legend(shown.values(), shown.keys(), fontsize=8, ncols=2, loc="outside upper right")
    panels[-1].set_xlabel("beside each bar: ms per step with Multiverso / DDP", fontsize=8)
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, dpi=150)


def parse() -> argparse.Namespace:
    """Return the command-line options."""
    parser = make_parser(__doc__)
    option, number = parser.add_argument, positive(int)
    option("--workers", type=number, nargs="+", default=WORKER_COUNTS, help="(default 2 4)")
    option("--models", choices=MODELS, nargs="+", default=list(MODELS), help="(default all)")
    option("--batch-sizes", type=number, nargs="+", default=BATCH_SIZES, help="(default 32 256)")
    option("--quick", action="store_true", help="fewer samples")
    option(
        "--sample",
        type=positive(float),
        default=0.02,
        metavar="SECONDS",
        help="shortest sample (default %(default)s)",
    )
    option("--plot", type=Path, metavar="FILE", help="plot the speeds to FILE")
    option("--limit", type=float, default=1800.0, metavar="SECONDS", help="for one mpirun")
    options = parser.parse_args()
    options.batch_sizes = list(options.batch_sizes)
    return options


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = parse()
    if find_launcher():
        measured = measure(options)
    else:
        arguments = forwarded(options, "models", "batch_sizes", "quick", "sample")
        script = Path(__file__).resolve()
        measured = launch_all(script, list(options.workers), arguments, options.limit)
    deliver(measured, options, report.show, plot)


if __name__ == "__main__":
    main()
