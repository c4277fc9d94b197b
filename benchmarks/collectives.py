"""Measure the collectives of the backend "multiverso" of torch.distributed against gloo.

    python benchmarks/collectives.py                          2 and 4 ranks
    python benchmarks/collectives.py --ranks 2 --quick        few samples
    python benchmarks/collectives.py --json F --plot F.svg    every sample, and a chart
    mpirun -np 2 python benchmarks/collectives.py             the ranks of this job

Both backends make the same calls on the same tensors in the same processes, each with one thread.
Samples alternate, because the speed of a machine drifts: ratios are comparable between runs and
machines, times less so. A step is a forward and a backward pass of DistributedDataParallel, which
sums the gradients. Before the measurement, the program checks that both backends sum alike.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import multiverso.torch_ext.distributed  # noqa: F401 (registers the backend)
import report
from comparisons import Case
from ddp import build, make_batches
from environment import describe
from gloo import gloo
from mpirun_jobs import launch_all, progress
from multiverso._mpi.launcher import find_launcher
from options import deliver, forwarded, make_parser, positive
from ranks import Ranks, find_mpi
from samples import Effort, Statement, alternate

if TYPE_CHECKING:
    from collections.abc import Callable

    Calls = dict[str, Callable[[Any], object]]

RANK_COUNTS = (2, 4)
OURS, GLOO = "multiverso", "gloo"
SIZES = (1, 1_000, 100_000, 1_000_000, 10_000_000)
ONE_SIZE = 1_000_000
#: Widths of the hidden layers and batch sizes of the steps.
STEPS = {
    "0.13 M, batch 32": ((160,), 32),
    "1.3 M, batch 32": ((800, 800), 32),
    "1.3 M, batch 256": ((800, 800), 256),
}


def calls(ranks: int, sizes: list[int]) -> Calls:
    """Return the calls by name; each takes a group."""
    made: Calls = {}
    for size in sizes:
        made[f"all_reduce {size:.0e}"] = _all_reduce(torch.zeros(size))
    made[f"all_reduce bfloat16 {ONE_SIZE:.0e}"] = _all_reduce(torch.zeros(ONE_SIZE).bfloat16())
    one, all_ = torch.ones(ONE_SIZE), torch.empty(ONE_SIZE * ranks)
    exchanged, part = torch.ones(ONE_SIZE // ranks * ranks), torch.empty(ONE_SIZE // ranks)
    received = torch.empty_like(exchanged)
    made["broadcast 1e+06"] = lambda group: distributed.broadcast(one, 0, group)
    made["all_gather 1e+06"] = lambda group: group._allgather_base(all_, one).wait()
    made["reduce_scatter 1e+06"] = lambda group: group._reduce_scatter_base(part, exchanged).wait()
    made["all_to_all 1e+06"] = lambda group: distributed.all_to_all_single(
        received, exchanged, group=group
    )
    made["barrier"] = lambda group: distributed.barrier(group)
    return made


def _all_reduce(tensor: torch.Tensor) -> Callable[[Any], object]:
    return lambda group: distributed.all_reduce(tensor, group=group)


def steps(groups: dict[str, Any], rank: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Return training steps by name and backend."""
    made = {}
    for name, (widths, batch_size) in STEPS.items():
        model = build(widths)
        x, y = make_batches(rank, batch_size)[0]
        made[f"step {name}"] = {
            backend: _step(DistributedDataParallel(copy.deepcopy(model), process_group=group), x, y)
            for backend, group in groups.items()
        }
    return made


def _step(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    def step() -> None:
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()

    return step


def check(groups: dict[str, Any], rank: int) -> None:
    """Raise SystemExit unless both backends sum to the same within rounding."""
    given = torch.randn(10_000, generator=torch.Generator().manual_seed(rank))
    sums = {}
    for backend, group in groups.items():
        sums[backend] = given.clone()
        distributed.all_reduce(sums[backend], group=group)
    if not torch.allclose(sums[OURS], sums[GLOO], rtol=1e-5, atol=1e-6):
        raise SystemExit("expected the same sums from both backends")


def measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this job; return the report on the master, else None."""
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    if ranks.size < 2:
        raise SystemExit("expected two or more ranks, received one")
    effort = Effort(options.sample, *((0.1, 3, 51) if options.quick else (1.0, 7, 101)))
    cases = []
    with gloo(ranks) as (_, without_gloo):
        if without_gloo:
            raise SystemExit(without_gloo)
        groups = {OURS: distributed.new_group(backend=OURS), GLOO: distributed.group.WORLD}
        check(groups, ranks.rank)
        named = {
            name: {backend: (lambda c=call, g=group: c(g)) for backend, group in groups.items()}
            for name, call in calls(ranks.size, list(options.sizes)).items()
        }
        named |= steps(groups, ranks.rank)
        for name, of in progress(list(named.items()), ranks.is_master):
            candidates = [
                Statement(backend, "call()", ranks.size, call=call) for backend, call in of.items()
            ]
            cases.append(Case(name, 0, alternate(candidates, ranks, effort)))
    if not ranks.is_master:
        return None
    run = report.to_json(cases, [], ranks.size)
    return {"environment": describe(mpi), "notes": [problem] if problem else [], "runs": [run]}


def plot(measured: dict[str, Any], file: Path) -> None:
    """Plot the speed relative to gloo as bars on a logarithmic axis, a panel for each job."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    runs = measured["runs"]
    bars = sum(len(run["cases"]) for run in runs)
    figure = Figure((6, 1.0 * len(runs) + 0.26 * bars), layout="constrained")
    panels = figure.subplots(len(runs), squeeze=False, sharex=True)[:, 0]
    for axes, run in zip(panels, runs, strict=True):
        names = [case["operation"] for case in run["cases"]]
        for place, case in enumerate(run["cases"]):
            ours, reference = case["series"]
            speed = reference["speed_at_best"]
            axes.barh(place, speed, 0.7, color="#3546a5")
            shortest = [1e6 * min(one["seconds"]) for one in (ours, reference)]
            text = " / ".join(f"{us:.3g}" if us < 1000 else f"{us:.0f}" for us in shortest)
            axes.text(max(speed, 1) * 1.08, place, f"{text} us", va="center", fontsize=8)
        axes.set_xscale("log")
        axes.axvline(1, color="#c2410c", linewidth=1.2)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(f"{run['ranks']} ranks: speed, gloo = 1", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.35)
    panels[-1].set_xlabel("beside each bar: us per call with multiverso / gloo", fontsize=8)
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, dpi=150)


def parse() -> argparse.Namespace:
    """Return the command-line options."""
    parser = make_parser(__doc__)
    option, number = parser.add_argument, positive(int)
    option("--ranks", type=number, nargs="+", default=RANK_COUNTS, help="(default 2 4)")
    option("--sizes", type=number, nargs="+", default=SIZES, help="elements of all_reduce")
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
    options.sizes = list(options.sizes)
    return options


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = parse()
    if find_launcher():
        measured = measure(options)
    else:
        arguments = forwarded(options, "sizes", "quick", "sample")
        script = Path(__file__).resolve()
        measured = launch_all(script, list(options.ranks), arguments, options.limit)
    deliver(measured, options, report.show, plot)


if __name__ == "__main__":
    main()
