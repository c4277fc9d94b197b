"""Measure syncs between nodes whose values travel as float32, bfloat16 and int8.

Each rank is a node with half of a table, and all ranks sync at the same time, so every link is used
in both directions. Syncs of the three formats alternate. A sync's time is that of the slowest rank.
The time for encoding, which includes decoding, is compared with that of copying the same float32
values; it overlaps with messages.

    python benchmarks/wires.py                          two virtual nodes of this machine
    python tests/hosts/hosts.py --rate 1gbit tests/hosts/mpirun -np 2 python benchmarks/wires.py
                                                        two network namespaces (as root)
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import environment
import multiverso as mv
from mpirun_jobs import launch, progress
from multiverso._mpi.launcher import find_launcher
from multiverso.sync import ParamSync
from multiverso.tables._array_table import ExchangeTable
from options import deliver, forwarded, make_parser, positive

_WIRES = ("float32", "bfloat16", "int8")
_JOB_TIMEOUT = 900.0
_COUNTS = ("bytes_sent", "raw_bytes_sent", "seconds_encoding")


def _measure(size: int, rounds: int) -> dict[str, Any] | None:
    """Measure as one of the ranks; return the report on the master."""
    from mpi4py import MPI

    with mv.session() as session:
        if session.num_nodes < 2:
            raise SystemExit("expected ranks on several nodes: set MULTIVERSO_RANKS_PER_NODE=1")
        rng = np.random.default_rng(mv.rank())
        progress_of_steps = rng.normal(scale=1e-3, size=size).astype(np.float32)
        arrays = {wire: np.zeros(size, np.float32) for wire in _WIRES}
        syncs = {wire: ParamSync([arrays[wire]], name=wire, wire=wire) for wire in _WIRES}
        tables = {wire: ExchangeTable(size, name=f"add {wire}", wire=wire) for wire in _WIRES}
        seconds: dict[str, list[float]] = {wire: [] for wire in _WIRES}
        copies = []
        out = np.empty_like(progress_of_steps)
        for number in progress(list(range(rounds + 1)), is_master=mv.worker_id() == 0):
            for wire in _WIRES:
                arrays[wire] += progress_of_steps
                mv.barrier()
                begin = time.perf_counter()
                syncs[wire].sync()
                times = np.zeros(mv.num_workers())
                times[mv.worker_id()] = time.perf_counter() - begin
                if number > 0:  # the first round touches new memory
                    seconds[wire].append(float(mv.aggregate(times).max()))
                tables[wire].add(progress_of_steps)
                mv.barrier()
            begin = time.perf_counter()
            np.copyto(out, progress_of_steps)
            copies.append(time.perf_counter() - begin)
        stats = mv.stats()
        case: dict[str, Any] = {"size": size, "ranks": mv.size(), "copy": min(copies[1:])}
        for wire in _WIRES:
            of_sync = next(counts for name, counts in stats.items() if name.startswith(f"{wire},"))
            of_add = stats[f"add {wire}"]
            case[wire] = {
                "seconds": seconds[wire],
                "sync": {
                    name: mv.aggregate(np.array([of_sync[name]]) * 1.0)[0] for name in _COUNTS
                },
                "add": {name: mv.aggregate(np.array([of_add[name]]) * 1.0)[0] for name in _COUNTS},
            }
        described = environment.describe(MPI)
        is_master = mv.worker_id() == 0
    return {"environment": described, "cases": [case]} if is_master else None


def _show(measured: dict[str, Any]) -> None:
    print(f"{measured['environment']['cpu']}, {measured['environment'].get('mpi', 'MPI')}")
    print(f"{'':>10} {'sync':>10} {'to float32':>11} {'bytes of adds':>14} {'of syncs':>9}"
          f" {'copy/encoding':>14}")  # fmt: skip
    for case in measured["cases"]:
        base = statistics.median(case["float32"]["seconds"])
        for wire in _WIRES:
            median = statistics.median(case[wire]["seconds"])
            fewer = [case[wire][of]["raw_bytes_sent"] / case[wire][of]["bytes_sent"]
                     for of in ("add", "sync")]  # fmt: skip
            encoding = case[wire]["add"]["seconds_encoding"]
            # The adds encode and decode what is not on the own node.
            copied = case["copy"] * case[wire]["add"]["raw_bytes_sent"] / (4 * case["size"])
            speed = f"{copied / encoding:>14.2f}" if encoding > 0 else f"{'-':>14}"
            print(f"{wire:>10} {median * 1e3:>7.1f} ms {median / base:>11.2f} {fewer[0]:>12.2f} x"
                  f" {fewer[1]:>7.2f} x {speed}")  # fmt: skip


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    parser = make_parser(__doc__)
    parser.add_argument("--size", type=positive(int), default=10_000_000)
    parser.add_argument("--rounds", type=positive(int), default=9)
    options = parser.parse_args()
    if find_launcher():
        measured = _measure(options.size, options.rounds)
    else:
        os.environ.setdefault("MULTIVERSO_RANKS_PER_NODE", "1")
        arguments = forwarded(options, "size", "rounds")
        measured = launch(Path(__file__).resolve(), 2, arguments, _JOB_TIMEOUT)
    deliver(measured, options, _show)


if __name__ == "__main__":
    main()
