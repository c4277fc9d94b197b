"""Measure tables whose rows are on another node against MPI's Send and Recv.

Rank 0 stores the table and rank 1 uses it, so every byte crosses between the nodes. The reference
moves the same bytes in the same run with mpi4py's Send and Recv, plus one byte in the other
direction: a request, or the confirmation of the arrival. Samples of tables and reference alternate.
A sample of a small table is the mean of up to 50 calls in a row.

    python benchmarks/remote.py                         two virtual nodes of this machine
    mpirun -np 2 --hostfile H python benchmarks/remote.py          two machines
    python tests/hosts/hosts.py tests/hosts/mpirun -np 2 python benchmarks/remote.py
                                                        two network namespaces (as root)
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import environment
import multiverso as mv
from mpirun_jobs import launch
from multiverso._mpi.launcher import find_launcher
from options import deliver, forwarded, make_parser

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZES = (1_000, 100_000, 1_000_000, 10_000_000)
_JOB_TIMEOUT = 600.0
#: The bar: lowest speed relative to the reference at the largest size.
_MIN_SPEED_RATIO = 0.85


def _num_rounds(size: int) -> int:
    return 20 if size <= 1_000_000 else 9


def _num_calls(size: int) -> int:
    """Return the number of calls per sample: a training program makes one call after another."""
    return max(1, min(50, 5_000_000 // size))


class _Reference:
    """Moves the bytes of a table with Send and Recv; each kind of message has its own tag."""

    def __init__(self, mpi: Any, size: int) -> None:
        self._comm = mpi.COMM_WORLD
        self._values = np.ones(size, np.float32)
        self._confirmation = np.zeros(1, np.uint8)

    def push(self, rank: int) -> None:
        """Rank 1 sends, rank 0 confirms."""
        if rank == 1:
            self._comm.Send(self._values, 0, 1)
            self._comm.Recv(self._confirmation, 0, 2)
        else:
            self._comm.Recv(self._values, 1, 1)
            self._comm.Send(self._confirmation, 1, 2)

    def pull(self, rank: int) -> None:
        """Rank 1 requests, rank 0 sends."""
        if rank == 1:
            self._comm.Send(self._confirmation, 0, 3)
            self._comm.Recv(self._values, 0, 4)
        else:
            self._comm.Recv(self._confirmation, 1, 3)
            self._comm.Send(self._values, 1, 4)


def _timed(calls: int, function: Callable[..., object], *arguments: object) -> float:
    """Return the seconds per call."""
    begin = time.perf_counter()
    for _ in range(calls):
        function(*arguments)
    return (time.perf_counter() - begin) / calls


def _measure_size(mpi: Any, rank: int, size: int) -> dict[str, Any]:
    """Return the median seconds of each operation as rank 1 measured them."""
    table = mv.ArrayTable(size)
    reference = _Reference(mpi, size)
    delta, out = np.ones(size, np.float32), np.empty(size, np.float32)
    ours: dict[str, Callable[[], object]] = {
        "add": lambda: table.add(delta),
        "get": lambda: table.get(out=out),
        "add_get": lambda: table.add_get(delta, out=out),
    }
    calls = _num_calls(size)
    samples: dict[str, list[float]] = {}
    for round_number in range(_num_rounds(size) + 1):
        times = {
            "Send": _timed(calls, reference.push, rank),
            "Recv": _timed(calls, reference.pull, rank),
        }
        mv.barrier()
        if rank == 1:
            times.update({name: _timed(calls, call) for name, call in ours.items()})
        mv.barrier()
        if round_number > 0:  # the first round touches new memory, so it does not count
            for name, seconds in times.items():
                samples.setdefault(name, []).append(seconds)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    return {"size": size, "seconds": medians}


def _measure(sizes: list[int]) -> dict[str, Any] | None:
    """Measure as one of two ranks; return the report on rank 1, which takes the times."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    if MPI.COMM_WORLD.Get_size() != 2:
        raise SystemExit(f"expected 2 ranks, received {MPI.COMM_WORLD.Get_size()}")
    with mv.session(role="server" if rank == 0 else "worker") as session:
        if session.num_nodes != 2:
            raise SystemExit("expected ranks on two nodes: set MULTIVERSO_RANKS_PER_NODE=1")
        cases = [_measure_size(MPI, rank, size) for size in sizes]
        described = environment.describe(MPI)
    return {"environment": described, "cases": cases} if rank == 1 else None


def _show(measured: dict[str, Any]) -> None:
    print(f"{measured['environment']['cpu']}, {measured['environment'].get('mpi', 'MPI')}")
    print(f"{'size':>12} {'add':>10} {'get':>10} {'add_get':>10} {'Send':>10} {'Recv':>10}"
          f"  add/Send  get/Recv")  # fmt: skip
    for case in measured["cases"]:
        seconds = case["seconds"]
        row = "".join(
            f" {seconds[name] * 1e6:>7.0f} us" for name in ("add", "get", "add_get", "Send", "Recv")
        )
        add, get = seconds["Send"] / seconds["add"], seconds["Recv"] / seconds["get"]
        print(f"{case['size']:>12,}{row}  {add:>8.2f}  {get:>8.2f}")
        if case["size"] >= _SIZES[-1]:
            verdict = "PASS" if min(add, get) >= _MIN_SPEED_RATIO else "below"
            print(f"{'':>12} required: {_MIN_SPEED_RATIO} of the reference's speed: {verdict}")


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    parser = make_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(_SIZES))
    options = parser.parse_args()
    if find_launcher():
        measured = _measure(options.sizes)
    else:
        os.environ.setdefault("MULTIVERSO_RANKS_PER_NODE", "1")
        arguments = forwarded(options, "sizes")
        measured = launch(Path(__file__).resolve(), 2, arguments, _JOB_TIMEOUT)
    deliver(measured, options, _show)


if __name__ == "__main__":
    main()
