"""Predict the time of a round on many nodes from measurements on a few.

    python benchmarks/scale_model.py                            measure, check, predict
    python benchmarks/scale_model.py --plot scaling.png         also plot
    python benchmarks/scale_model.py --latency 2e-6 --bandwidth 12e9       for another network

Latency and bandwidth are measured between two virtual nodes of this machine. From them the model
(`scale_layouts.py`) predicts runs on up to eight virtual nodes, which are also measured as a check,
and rounds on up to 4 096 nodes that each have their own machine.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import environment
import multiverso as mv
from mpirun_jobs import launch
from options import deliver, make_parser, positive
from scale_layouts import LAYOUTS, Costs, Job, dedicated, rounds, seconds_of, spread

_JOB_TIMEOUT = 300.0
_BYTES = 4  # of an element
_SMALL, _LARGE = 8, 1_000_000  # elements of the measured tables
#: Measured jobs: (nodes, workers per node), in the dedicated layout besides one server node.
_RUNS = {
    "spread": ((1, 2), (2, 1), (4, 1), (8, 1), (2, 2)),
    "sync": ((2, 1), (4, 1), (8, 1), (2, 2)),
    "dedicated": ((1, 1), (2, 1), (3, 1)),
}
_LAYOUTS = {"spread": spread, "sync": rounds, "dedicated": dedicated}
#: Jobs that determine the costs, so they cannot check the model.
_CALIBRATION = {"spread": ((1, 2), (2, 1)), "sync": (), "dedicated": ((1, 1),)}
_SAMPLES = 24
_NODE_COUNTS = [2**power for power in range(13)]


def _sample(mpi: Any, size: int, is_worker: bool) -> float:
    """Return the shortest seconds of a round of all workers, of many samples."""
    table = mv.ArrayTable(size)
    delta, out = np.ones(size, np.float32), np.empty(size, np.float32)
    # An idle server polls less often, so a sample has several calls.
    calls = 2 if size > 10_000 else 50
    seconds = []
    for _ in range(_SAMPLES):
        mv.barrier()
        begin = time.perf_counter()
        for _ in range(calls if is_worker else 0):
            table.add_get(delta, out=out)
        end = time.perf_counter()
        gathered = mpi.COMM_WORLD.allgather((begin, end) if is_worker else None)
        spans = [span for span in gathered if span is not None]
        seconds.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
    return min(seconds) / calls


def _measure(layout: str) -> dict[str, Any] | None:
    """Measure as a rank of a job."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    role = "all" if layout != "dedicated" else "server" if rank == 0 else "worker"
    with mv.session(role=role, sync=layout == "sync"):
        seconds = [_sample(MPI, size, role != "server") for size in (_SMALL, _LARGE)]
        described = environment.describe(MPI)
    return {"environment": described, "seconds": seconds} if rank == 0 else None


def _run(layout: str, nodes: int, workers: int) -> dict[str, Any]:
    """Measure a job with that many nodes with workers."""
    os.environ["MULTIVERSO_RANKS_PER_NODE"] = str(workers)
    ranks = nodes * workers + (layout == "dedicated")
    return launch(Path(__file__).resolve(), ranks, ["--measure", layout], _JOB_TIMEOUT)


def _costs(runs: dict[tuple[str, int, int], list[float]]) -> Costs:
    """Return the costs that the runs on one node, on two and with a dedicated server imply."""
    table_bytes = _LARGE * _BYTES
    alone, two = runs["spread", 1, 2][1], runs["spread", 2, 1][1]
    small, remote = runs["dedicated", 1, 1]
    return Costs(
        latency=small / 2,
        # Each of two nodes stores half of the table and accesses it in its own memory.
        bandwidth=table_bytes / max(two - small - alone / 2, 1e-9),
        server_bandwidth=table_bytes / max(remote - small, 1e-9),
        # Virtual nodes have no wire between them: the latency is entirely work at both ends.
        message=small / 2,
        memory=table_bytes / alone,
        handover=max(runs["sync", 2, 1][0] - small, 1e-9),
    )


def _calibrate(repeats: int) -> dict[str, Any]:
    """Return the costs measured on this machine and the runs that check the model."""
    jobs = [(layout, *job) for layout, jobs in _RUNS.items() for job in jobs]
    # The jobs alternate, because the load of the machine changes.
    repeated = [{job: _run(*job) for job in jobs} for _ in range(repeats)]
    runs = {job: np.min([run[job]["seconds"] for run in repeated], axis=0).tolist() for job in jobs}
    costs = _costs(runs)
    cores = os.cpu_count() or 1
    checks = []
    for (name, nodes, workers), times in runs.items():
        for size, seconds in zip((_SMALL, _LARGE), times, strict=True):
            if size == _SMALL and (name, nodes, workers) != ("spread", 2, 1):
                continue  # a cost, or the scheduler dominates since ranks outnumber cores
            if size == _LARGE and (nodes, workers) in _CALIBRATION[name]:
                continue
            job = Job(nodes, workers, size * _BYTES, cores)
            predicted = seconds_of(_LAYOUTS[name](job), costs, job)
            check = {"layout": name, "nodes": nodes, "workers": workers, "size": size}
            checks.append(check | {"measured": seconds, "predicted": predicted})
    described = repeated[0][jobs[0]]["environment"]
    return {"environment": described, "costs": asdict(costs), "checks": checks}


def _predict(costs: Costs, workers: int, size: int) -> dict[str, Any]:
    """Return the seconds and bytes of a round for every layout and number of nodes."""
    jobs = [Job(nodes, workers, size * _BYTES) for nodes in _NODE_COUNTS]
    curves = {
        name: {
            "seconds": [seconds_of(layout(job), costs, job) for job in jobs],
            "node_bytes": [layout(job).sent for job in jobs],
        }
        for name, layout in LAYOUTS.items()
    }
    return {"workers": workers, "size": size, "nodes": _NODE_COUNTS, "layouts": curves}


def _show(report: dict[str, Any]) -> None:
    costs = Costs(**report["costs"])
    print(
        f"latency {costs.latency * 1e6:.1f} us, bandwidth {costs.bandwidth / 1e9:.2f} GB/s "
        f"({costs.server_bandwidth / 1e9:.2f} to servers), "
        f"message {costs.message * 1e6:.1f} us, memory {costs.memory / 1e9:.2f} GB/s, "
        f"handover {costs.handover * 1e6:.1f} us"
    )
    for check in report["checks"]:
        job = f"{check['layout']}, {check['nodes']} x {check['workers']} workers, {check['size']:,}"
        ratio = check["measured"] / check["predicted"] if check["predicted"] else float("nan")
        print(f"{job:<44} measured {check['measured'] * 1e6:>9.1f} us, "
              f"predicted {check['predicted'] * 1e6:>9.1f} us, ratio {ratio:.2f}")  # fmt: skip
    predicted = report["predicted"]
    shown = [1, 4, 16, 64, 256, 1024, 4096]
    print(f"{predicted['size']:,} float32, {predicted['workers']} workers per node: milliseconds")
    print(f"{'nodes':<40}" + "".join(f"{nodes:>10,}" for nodes in shown))
    for name, curve in predicted["layouts"].items():
        row = [curve["seconds"][predicted["nodes"].index(nodes)] for nodes in shown]
        print(f"{name:<40}" + "".join(f"{seconds * 1e3:>10.2f}" for seconds in row))


def _plot(report: dict[str, Any], file: Path) -> None:
    """Plot the predicted times and bytes over the nodes, and the check."""
    from matplotlib.figure import Figure

    predicted = report["predicted"]
    figure = Figure(figsize=(8, 7.2))
    grid = figure.add_gridspec(2, 2)
    times = figure.add_subplot(grid[0, :])
    sent, checks = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    for index, (name, curve) in enumerate(predicted["layouts"].items()):
        style = {"label": name, "color": f"C{index}", "linestyle": ("-", ":", "--")[index % 3]}
        times.loglog(predicted["nodes"], [1e3 * s for s in curve["seconds"]], linewidth=2, **style)
        points = [(n, b / 1e6) for n, b in zip(predicted["nodes"], curve["node_bytes"],
                                               strict=True) if b]  # fmt: skip
        sent.loglog(*zip(*points, strict=True), linewidth=2, **style)
    title = f"{predicted['size']:,} float32, {predicted['workers']} workers per node"
    times.set(title=f"A round of {title}", xlabel="nodes", ylabel="milliseconds")
    sent.set(title="The busiest node", xlabel="nodes", ylabel="MB sent per round")
    times.legend()
    for index, (name, marker) in enumerate((("spread", "o"), ("dedicated", "s"), ("sync", "D"))):
        pairs = [(1e3 * check["predicted"], 1e3 * check["measured"])
                 for check in report["checks"] if check["layout"] == name]  # fmt: skip
        if pairs:
            checks.loglog(*zip(*pairs, strict=True), marker, color=f"C{index}")
    ends = checks.get_xlim()
    checks.plot(ends, ends, color="0.6", label="measured = predicted")
    checks.set(title="Virtual nodes", xlabel="predicted ms", ylabel="measured ms")
    checks.legend()
    for axes in (times, sent, checks):
        axes.grid(visible=True, which="major", alpha=0.3)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
    figure.tight_layout()
    figure.savefig(file, dpi=100)


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    option = parser.add_argument
    for name, meaning in (
        ("latency", "seconds of half a round trip"),
        ("bandwidth", "bytes per second of a link, each way"),
        ("server-bandwidth", "the same for nodes that only serve; --bandwidth if that is given"),
        ("message", "seconds of a node's work for one request and its response"),
        ("memory", "bytes per second of an add_get in memory"),
        ("handover", "seconds for the handover of a round to a leader and back"),
    ):
        option(f"--{name}", type=positive(float), metavar="X", help=f"{meaning}; else measured")
    option("--workers", type=positive(int), default=4, metavar="N", help="per node")
    option("--size", type=positive(int), default=_LARGE, metavar="N", help="of the table")
    option("--repeats", type=positive(int), default=5, metavar="N", help="of each measurement")
    option("--plot", type=Path, metavar="FILE", help="plot to FILE")
    option("--measure", choices=list(_LAYOUTS), help=argparse.SUPPRESS)  # as a rank of a job
    return parser.parse_args()


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = _parse()
    if options.measure is not None:
        report = _measure(options.measure)
    else:
        names = [field.name for field in fields(Costs)]
        given = {name: getattr(options, name) for name in names if getattr(options, name)}
        if "bandwidth" in given:
            given.setdefault("server_bandwidth", given["bandwidth"])
        is_given = len(given) == len(names)
        report = {"checks": [], "costs": given} if is_given else _calibrate(options.repeats)
        costs = replace(Costs(**report["costs"]), **given)
        report["costs"] = asdict(costs)
        report["predicted"] = _predict(costs, options.workers, options.size)
    deliver(report, options, _show, _plot)


if __name__ == "__main__":
    main()
