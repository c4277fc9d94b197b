"""Predict the time of a round on many nodes from measurements on a few.

    python benchmarks/scale_model.py                            measure, check, predict
    python benchmarks/scale_model.py --plot scaling.png         also plot
    python benchmarks/scale_model.py --latency 2e-6 --bandwidth 12e9       for another network

Latency and bandwidth are measured between two virtual nodes of this machine. From them the model
(`scale_layouts.py`) predicts runs on up to four virtual nodes, which are also measured as a check,
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
from scale_layouts import LAYOUTS, Costs, Job, dedicated, seconds_of, spread

_JOB_TIMEOUT = 300.0
_BYTES = 4  # of an element
_SMALL, _LARGE = 8, 1_000_000  # elements of the measured tables
#: Measured jobs: (nodes, workers per node) if all ranks serve; else nodes besides one server.
_SPREAD = ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2))
_DEDICATED = (1, 2, 3)
#: Jobs that determine the costs, so they cannot check the model.
_CALIBRATION = {"spread": ((1, 1), (2, 1)), "dedicated": ((1, 1),)}
_NODE_COUNTS = [2**power for power in range(13)]


def _sample(mpi: Any, size: int, is_worker: bool) -> float:
    """Return the shortest seconds of a round of all workers, of 16 samples."""
    table = mv.ArrayTableHandler(size)
    delta, out = np.ones(size, np.float32), np.empty(size, np.float32)
    # An idle server polls less often, so a sample has several calls.
    calls = 2 if size > 10_000 else 50
    seconds = []
    for _ in range(16):
        mv.barrier()
        begin = time.perf_counter()
        for _ in range(calls if is_worker else 0):
            table.add_get(delta, out=out)
        end = time.perf_counter()
        gathered = mpi.COMM_WORLD.allgather((begin, end) if is_worker else None)
        spans = [span for span in gathered if span is not None]
        seconds.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
    return min(seconds) / calls


def _measure(servers: int) -> dict[str, Any] | None:
    """Measure as a rank of a job in which the first `servers` ranks only serve."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    role = "all" if not servers else "server" if rank < servers else "worker"
    with mv.session(role=role):
        seconds = [_sample(MPI, size, role != "server") for size in (_SMALL, _LARGE)]
        described = environment.describe(MPI)
    return {"environment": described, "seconds": seconds} if rank == 0 else None


def _run(ranks: int, servers: int = 0, per_node: int = 1) -> dict[str, Any]:
    """Measure in a job of `ranks` ranks."""
    os.environ["MULTIVERSO_RANKS_PER_NODE"] = str(per_node)
    arguments = ["--servers", str(servers)]
    return launch(Path(__file__).resolve(), ranks, arguments, _JOB_TIMEOUT)


def _costs(runs: dict[tuple[str, int, int], dict[str, Any]]) -> Costs:
    """Return the costs that the runs on one node, on two and with a dedicated server imply."""
    table_bytes = _LARGE * _BYTES
    alone, two = runs["spread", 1, 1]["seconds"][1], runs["spread", 2, 1]["seconds"][1]
    small, remote = runs["dedicated", 1, 1]["seconds"]
    return Costs(
        latency=small / 2,
        # Each of two nodes stores half of the table and accesses it in its own memory.
        bandwidth=table_bytes / max(two - small - alone / 2, 1e-9),
        server_bandwidth=table_bytes / max(remote - small, 1e-9),
        # Virtual nodes have no wire between them: the latency is entirely work at both ends.
        message=small / 2,
        memory=table_bytes / alone,
    )


def _calibrate() -> dict[str, Any]:
    """Return the costs measured on this machine and the runs that check the model."""
    runs = {("spread", nodes, workers): _run(nodes * workers, 0, workers)
            for nodes, workers in _SPREAD}  # fmt: skip
    runs |= {("dedicated", nodes, 1): _run(nodes + 1, 1) for nodes in _DEDICATED}
    costs = _costs(runs)
    cores = os.cpu_count() or 1
    checks = []
    for (name, nodes, workers), run in runs.items():
        layout = spread if name == "spread" else dedicated
        for size, seconds in zip((_SMALL, _LARGE), run["seconds"], strict=True):
            if size == _SMALL and (name, nodes, workers) != ("spread", 2, 1):
                continue  # with more ranks than cores, the scheduler dominates
            if size == _LARGE and (nodes, workers) in _CALIBRATION[name]:
                continue
            job = Job(nodes, workers, size * _BYTES, cores)
            predicted = seconds_of(layout(job), costs, job)
            check = {"layout": name, "nodes": nodes, "workers": workers, "size": size}
            checks.append(check | {"measured": seconds, "predicted": predicted})
    described = runs["spread", 1, 1]["environment"]
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
        f"message {costs.message * 1e6:.1f} us, memory {costs.memory / 1e9:.2f} GB/s"
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
    figure = Figure(figsize=(16, 4.6))
    times, sent, checks = figure.subplots(1, 3)
    for index, (name, curve) in enumerate(predicted["layouts"].items()):
        style = {"label": name, "color": f"C{index}", "linestyle": ("-", "--")[index % 2]}
        times.loglog(predicted["nodes"], [1e3 * s for s in curve["seconds"]], **style)
        points = [(n, b / 1e6) for n, b in zip(predicted["nodes"], curve["node_bytes"],
                                               strict=True) if b]  # fmt: skip
        sent.loglog(*zip(*points, strict=True), **style)
    title = f"{predicted['size']:,} float32, {predicted['workers']} workers per node"
    times.set(title=f"a round: {title}", xlabel="nodes", ylabel="milliseconds")
    sent.set(title=f"the busiest node: {title}", xlabel="nodes", ylabel="MB sent per round")
    times.legend(fontsize="small")
    for name, marker in (("spread", "o"), ("dedicated", "s")):
        pairs = [(1e3 * check["predicted"], 1e3 * check["measured"])
                 for check in report["checks"] if check["layout"] == name]  # fmt: skip
        if pairs:
            checks.loglog(*zip(*pairs, strict=True), marker, label=name)
    ends = checks.get_xlim()
    checks.plot(ends, ends, color="0.6", label="prediction")
    checks.set(title="virtual nodes of one machine", xlabel="predicted, ms", ylabel="measured, ms")
    checks.legend(fontsize="small")
    for axes in (times, sent, checks):
        axes.grid(visible=True, which="major", alpha=0.3)
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
    ):
        option(f"--{name}", type=positive(float), metavar="X", help=f"{meaning}; else measured")
    option("--workers", type=positive(int), default=4, metavar="N", help="per node")
    option("--size", type=positive(int), default=_LARGE, metavar="N", help="of the table")
    option("--plot", type=Path, metavar="FILE", help="plot to FILE")
    option("--servers", type=int, help=argparse.SUPPRESS)  # for the ranks of a measured job
    return parser.parse_args()


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = _parse()
    if options.servers is not None:
        report = _measure(options.servers)
    else:
        names = [field.name for field in fields(Costs)]
        given = {name: getattr(options, name) for name in names if getattr(options, name)}
        if "bandwidth" in given:
            given.setdefault("server_bandwidth", given["bandwidth"])
        report = {"checks": [], "costs": given} if len(given) == len(names) else _calibrate()
        costs = replace(Costs(**report["costs"]), **given)
        report["costs"] = asdict(costs)
        report["predicted"] = _predict(costs, options.workers, options.size)
    deliver(report, options, _show, _plot)


if __name__ == "__main__":
    main()
