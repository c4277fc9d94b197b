"""Measure a call that adds 1 000 float32 to shared parameters and returns them, from Python.

    python benchmarks/calls.py --plot calls.svg

Two processes take part. One calls; the other one has the parameters of torch.distributed.rpc. Ray
starts processes of its own: an actor has the parameters, and put and get move the same number of
bytes without adding. NumPy adds into an array of its own and copies it. What is not installed is
left out. Samples alternate, because the speed of a machine drifts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multiverso as mv
from environment import describe
from options import deliver, make_parser, positive
from report import print_environment, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 1_000
OURS = "Multiverso, add_get"
NUMPY = "NumPy alone, nothing is shared"
REPORT = "calls.json"

_parameters = np.zeros(SIZE, np.float32)  # of the server of torch.distributed.rpc


def _add_get_at_server(delta: Any) -> Any:
    import torch

    _parameters.__iadd__(delta.numpy())
    return torch.from_numpy(_parameters.copy())


def _rpc_call() -> Callable[[], object]:
    import torch
    from torch.distributed import rpc

    delta = torch.ones(SIZE)
    return lambda: rpc.rpc_sync("server", _add_get_at_server, (delta,))


def _ray_calls() -> dict[str, Callable[[], object]]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)

    class Parameters:
        def __init__(self) -> None:
            self._values = np.zeros(SIZE, np.float32)

        def add_get(self, delta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            self._values += delta
            return self._values

    delta = np.ones(SIZE, np.float32)
    actor = ray.remote(Parameters).remote()
    return {
        "Ray, put and get": lambda: ray.get(ray.put(delta)),
        "Ray, a call of an actor": lambda: ray.get(actor.add_get.remote(delta)),
    }


def _own_calls(table: mv.ArrayTable) -> dict[str, Callable[[], object]]:
    delta, out = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)
    values = np.zeros(SIZE, np.float32)

    def alone() -> None:
        np.add(values, delta, out=values)
        np.copyto(out, values)

    return {
        NUMPY: alone,
        "Multiverso, prepared add_get": table.prepare_add_get(delta, out),
        OURS: lambda: table.add_get(delta, out=out),
    }


def _seconds(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def _alternate(calls: dict[str, Callable[[], object]], rounds: int, budget: float) -> list[Any]:
    """Return the median seconds of each call; a sample takes about `budget` seconds."""
    counts = {}
    for name, call in calls.items():
        _seconds(call, 20)
        counts[name] = max(1, int(budget / _seconds(call, 20)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name].append(_seconds(call, counts[name]))
    return [{"call": name, "seconds": statistics.median(times)} for name, times in samples.items()]


def measure(rounds: int, budget: float, folder: str) -> None:
    """Take part in the measurement as one of two ranks; the first one writes the report."""
    with_torch = find_spec("torch") is not None
    with mv.session():
        table = mv.ArrayTable(SIZE)
        if with_torch:
            from torch.distributed import rpc

            options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/ranks")
            name = ("client", "server")[mv.rank()]
            rpc.init_rpc(name, rank=mv.rank(), world_size=2, rpc_backend_options=options)
        if mv.rank() == 0:
            calls = _own_calls(table)
            if with_torch:
                calls["torch.distributed.rpc"] = _rpc_call()
            if find_spec("ray") is not None:
                calls |= _ray_calls()
            times = _alternate(calls, rounds, budget)
            result = {"environment": describe(None), "notes": [], "calls": times}
            Path(folder, REPORT).write_text(json.dumps(result))
        if with_torch:
            rpc.shutdown()
        mv.barrier()


def show(measured: dict[str, Any]) -> None:
    """Print the times, and how many times longer than ours each one is."""
    print_environment(measured)
    times = {entry["call"]: entry["seconds"] for entry in measured["calls"]}
    rows = [[n, f"{1e6 * t:.2f}", f"{t / times[OURS]:.2f}"] for n, t in times.items()]
    print_table(f"Add {SIZE:,} float32 and return them", ["call", "us", "of add_get"], rows)


def plot(measured: dict[str, Any], file: Path) -> None:
    """Plot the times as bars on a logarithmic axis."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    calls = measured["calls"]
    figure = Figure((6.2, 0.5 + 0.4 * len(calls)), layout="constrained")
    axes = figure.subplots()
    for place, entry in enumerate(calls):
        name, us = entry["call"], 1e6 * entry["seconds"]
        color = "#4f63d2" if name.startswith("Multiverso") else "#8b93a5"
        axes.barh(place, us, 0.66, color="#c5cad6" if name == NUMPY else color)
        text = f"{us:.2g}" if us < 100 else f"{us:,.0f}"
        axes.text(us * 1.12, place, text, va="center", fontsize=9, fontweight="bold")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_yticks(range(len(calls)), [entry["call"] for entry in calls], fontsize=9)
    axes.invert_yaxis()
    axes.set_title(f"Add {SIZE:,} float32 and read them back: microseconds", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.15)
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, dpi=150)


def parse() -> argparse.Namespace:
    """Return the command-line options."""
    parser = make_parser(__doc__)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the times to FILE")
    parser.add_argument("--rounds", type=positive(int), default=30, help="samples of each call")
    parser.add_argument(
        "--budget", type=positive(float), default=0.05, metavar="SECONDS", help="for each sample"
    )
    return parser.parse_args()


def main() -> None:
    """Measure, and report as the options request."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        mv.spawn(measure, args=(options.rounds, options.budget, folder), nprocs=2)
        measured = json.loads(Path(folder, REPORT).read_text())
    deliver(measured, options, show, plot)


if __name__ == "__main__":
    main()
