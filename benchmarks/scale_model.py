"""Predict the time of a round on many nodes from what is measured on few.

    python benchmarks/scale_model.py                            measure here, check, predict
    python benchmarks/scale_model.py --plot scaling.png         and draw it
    python benchmarks/scale_model.py --latency 2e-6 --bandwidth 12e9       for another network

Latency and bandwidth are measured between two virtual nodes on this machine. From them the model
(`scale_layouts.py`) predicts runs on up to four of them, which are measured as well and stand
beside the prediction, and rounds on up to 4 096 nodes that have a machine each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import environment
import multiverso as mv
from launcher import launch
from scale_layouts import LAYOUTS, Costs, Job, dedicated, seconds_of, spread

_LIMIT = 300.0
_BYTES = 4
_SMALL, _LARGE = 8, 1_000_000
#: What is measured: nodes and workers on each, all with servers; and nodes beside one server.
_SPREAD = ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2))
_DEDICATED = (1, 2, 3)
#: What the costs are taken from, which checks nothing.
_MEASURED_FROM = {"spread": ((1, 1), (2, 1)), "dedicated": ((1, 1),)}
_NODES = [2**power for power in range(13)]


def _sample(mpi: Any, size: int, is_worker: bool) -> float:
    """Return the seconds of a round of all workers, of the sample least disturbed by others."""
    table = mv.ArrayTableHandler(size)
    delta, out = np.ones(size, np.float32), np.empty(size, np.float32)
    # A server that has had nothing to do for a while looks less often, so several in a row.
    calls = 2 if size > 10_000 else 50
    spans = []
    for _ in range(16):
        mv.barrier()
        begin = time.perf_counter()
        for _ in range(calls if is_worker else 0):
            table.add_get(delta, out=out)
        end = time.perf_counter()
        every = mpi.COMM_WORLD.allgather((begin, end) if is_worker else None)
        moments = [one for one in every if one is not None]
        spans.append(max(end for _, end in moments) - min(begin for begin, _ in moments))
    return min(spans) / calls


def _measure(servers: int) -> dict[str, Any] | None:
    """Measure as a rank of a job in which the first `servers` ranks only serve, 0 for none."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    role = "all" if not servers else "server" if rank < servers else "worker"
    with mv.session(role=role):
        seconds = [_sample(MPI, size, role != "server") for size in (_SMALL, _LARGE)]
        described = environment.describe(MPI)
    return {"environment": described, "seconds": seconds} if rank == 0 else None


def _run(ranks: int, servers: int = 0, per_node: int = 1) -> dict[str, Any]:
    """Measure in a job of that many ranks."""
    os.environ["MULTIVERSO_RANKS_PER_NODE"] = str(per_node)
    arguments = ["--servers", str(servers)]
    return launch(Path(__file__).resolve(), ranks, arguments, _LIMIT)


def _costs(runs: dict[tuple[str, int, int], dict[str, Any]]) -> Costs:
    """Return the costs, from the runs of one node, of two, and of a worker and a server."""
    table_bytes = _LARGE * _BYTES
    alone, two = runs["spread", 1, 1]["seconds"][1], runs["spread", 2, 1]["seconds"][1]
    small, pair = runs["dedicated", 1, 1]["seconds"]
    return Costs(
        latency=small / 2,
        # Of two nodes each keeps half of the table, and so works on half of it in its own memory.
        bandwidth=table_bytes / max(two - small - alone / 2, 1e-9),
        server_bandwidth=table_bytes / max(pair - small, 1e-9),
        # Between virtual nodes nothing travels: the whole latency is work at either end.
        message=small / 2,
        memory=table_bytes / alone,
    )


def _measured() -> dict[str, Any]:
    """Return the costs measured on this machine and the runs that the model is checked against."""
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
                continue  # with more ranks than cores the scheduler decides, not the messages
            if size == _LARGE and (nodes, workers) in _MEASURED_FROM[name]:
                continue
            job = Job(nodes, workers, size * _BYTES, cores)
            predicted = seconds_of(layout(job), costs, job)
            check = {"layout": name, "nodes": nodes, "workers": workers, "size": size}
            checks.append(check | {"measured": seconds, "predicted": predicted})
    described = runs["spread", 1, 1]["environment"]
    return {"environment": described, "costs": asdict(costs), "checks": checks}


def _predict(costs: Costs, workers: int, size: int) -> dict[str, Any]:
    """Return seconds and bytes of a round for every layout and number of nodes."""
    jobs = [Job(nodes, workers, size * _BYTES) for nodes in _NODES]
    curves = {
        name: {
            "seconds": [seconds_of(layout(job), costs, job) for job in jobs],
            "node_bytes": [layout(job).sent for job in jobs],
        }
        for name, layout in LAYOUTS.items()
    }
    return {"workers": workers, "size": size, "nodes": _NODES, "layouts": curves}


def _show(report: dict[str, Any]) -> None:
    costs = Costs(**report["costs"])
    print(
        f"latency {costs.latency * 1e6:.1f} us, bandwidth {costs.bandwidth / 1e9:.2f} GB/s "
        f"({costs.server_bandwidth / 1e9:.2f} to servers), "
        f"message {costs.message * 1e6:.1f} us, memory {costs.memory / 1e9:.2f} GB/s"
    )
    for one in report["checks"]:
        where = f"{one['layout']}, {one['nodes']} x {one['workers']} workers, {one['size']:,}"
        ratio = one["measured"] / one["predicted"] if one["predicted"] else float("nan")
        print(f"{where:<44} measured {one['measured'] * 1e6:>9.1f} us, "
              f"predicted {one['predicted'] * 1e6:>9.1f} us, ratio {ratio:.2f}")  # fmt: skip
    predicted = report["predicted"]
    shown = [1, 4, 16, 64, 256, 1024, 4096]
    print(f"{predicted['size']:,} float32, {predicted['workers']} workers on a node: milliseconds")
    print(f"{'nodes':<40}" + "".join(f"{nodes:>10,}" for nodes in shown))
    for name, curve in predicted["layouts"].items():
        row = [curve["seconds"][predicted["nodes"].index(nodes)] for nodes in shown]
        print(f"{name:<40}" + "".join(f"{seconds * 1e3:>10.2f}" for seconds in row))


def _plot(report: dict[str, Any], file: Path) -> None:
    """Draw the predicted times and bytes over the nodes, and the check."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    predicted = report["predicted"]
    figure, (times, sent, checks) = plt.subplots(1, 3, figsize=(16, 4.6))
    for index, (name, curve) in enumerate(predicted["layouts"].items()):
        style = {"label": name, "color": f"C{index}", "linestyle": ("-", "--")[index % 2]}
        times.loglog(predicted["nodes"], [1e3 * one for one in curve["seconds"]], **style)
        points = [(n, b / 1e6) for n, b in zip(predicted["nodes"], curve["node_bytes"],
                                               strict=True) if b]  # fmt: skip
        sent.loglog(*zip(*points, strict=True), **style)
    title = f"{predicted['size']:,} float32, {predicted['workers']} workers on a node"
    times.set(title=f"a round: {title}", xlabel="nodes", ylabel="milliseconds")
    sent.set(title=f"the busiest node: {title}", xlabel="nodes", ylabel="MB sent in a round")
    times.legend(fontsize="small")
    for name, marker in (("spread", "o"), ("dedicated", "s")):
        pairs = [(1e3 * one["predicted"], 1e3 * one["measured"])
                 for one in report["checks"] if one["layout"] == name]  # fmt: skip
        if pairs:
            checks.loglog(*zip(*pairs, strict=True), marker, label=name)
    ends = checks.get_xlim()
    checks.plot(ends, ends, color="0.6", label="as predicted")
    checks.set(title="virtual nodes of one machine", xlabel="predicted, ms", ylabel="measured, ms")
    checks.legend(fontsize="small")
    for axes in (times, sent, checks):
        axes.grid(visible=True, which="major", alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=100)
    plt.close(figure)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, what in (
        ("latency", "seconds of half a round trip"),
        ("bandwidth", "bytes per second of a link, each way"),
        ("server-bandwidth", "the same to nodes that only serve; equal to it if that is given"),
        ("message", "seconds of a node's time for one request and its answer"),
        ("memory", "bytes per second of an add_get in memory"),
    ):
        parser.add_argument(f"--{name}", type=float, metavar="X", help=f"{what}; else measured")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="on each node")
    parser.add_argument("--size", type=int, default=_LARGE, metavar="N", help="of the table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it to FILE")
    parser.add_argument("--silent", action="store_true", help="print nothing")
    parser.add_argument("--servers", type=int, help=argparse.SUPPRESS)  # of a job started here
    parsed = parser.parse_args(arguments)
    for name in (*(field.name for field in fields(Costs)), "workers", "size"):
        value = getattr(parsed, name)
        if value is not None and not 0 < value < float("inf"):
            parser.error(f"--{name}: expected more than 0, received {value}")
    return parsed


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark; see the text at the top of this file.

    Parameters
    ----------
    arguments : list of str, optional
        The command line without the program's name; `sys.argv` if not given.
    """
    options = _parse(arguments)
    if options.servers is not None:
        report = _measure(options.servers)
    else:
        names = [field.name for field in fields(Costs)]
        given = {name: getattr(options, name) for name in names if getattr(options, name)}
        if "bandwidth" in given:
            given.setdefault("server_bandwidth", given["bandwidth"])
        report = {"checks": [], "costs": given} if len(given) == len(names) else _measured()
        costs = replace(Costs(**report["costs"]), **given)
        report["costs"] = asdict(costs)
        report["predicted"] = _predict(costs, options.workers, options.size)
    if report is None:
        return
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))
    if options.servers is not None:
        return
    if options.plot is not None:
        _plot(report, options.plot)
    if not options.silent:
        _show(report)


if __name__ == "__main__":
    main()
