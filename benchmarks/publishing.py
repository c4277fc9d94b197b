"""Measure publications to a folder: their bytes, the encoding, the reader, and the trainer.

    python benchmarks/publishing.py
    python benchmarks/publishing.py --elements 600_000_000 --silent --json publishing.json

In each step 1.5 % of the elements of a table change, at random places. It is published with
dtype="bfloat16". A reader applies the difference, which is compared with a copy of the changed
elements. A trainer of ten million floats that publishes each second to a folder alternates with
one that only publishes in memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import multiverso as mv
from environment import describe
from multiverso.publishing._encoding import DenseEncoder
from options import deliver, make_parser, positive
from report import print_environment, print_table

CHANGED = 0.015  # of the elements, in each step
TRAINED = 10_000_000  # elements of the trainer's table
ROUNDS = 3


def _timed(call: Any, *arguments: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - begin, result


def measure_difference(elements: int, folder: str) -> dict[str, Any]:
    """Publish a full version and differences; return sizes, speeds and times."""
    rng = np.random.default_rng(0)
    encoded, applied, copied = [], [], []
    with mv.session(name="benchmark"):
        table = mv.ArrayTable(elements, name="w")
        for first in range(0, elements, 1 << 24):
            end = min(first + (1 << 24), elements)
            values = rng.standard_normal(end - first, np.float32)
            table.add(values, index=np.s_[first:end])
        mv.publish(0, to=folder, dtype="bfloat16")
        mv.publish(0)
        encoder = DenseEncoder("BF16", 0, 1)
        with mv.follow(folder, timeout=600) as view, mv.attach(os.getpid()) as live:
            encoder.encode("w", live.tables["w"], live.version, True)
            for step in range(1, ROUNDS + 1):
                places = np.unique(rng.integers(0, elements, int(elements * CHANGED)))
                for part in np.array_split(places, 1 + len(places) // (1 << 20)):
                    low, high = int(part[0]), int(part[-1]) + 1
                    delta = np.zeros(high - low, np.float32)
                    delta[part - low] = 4  # larger than what rounding may hide
                    table.add(delta, index=np.s_[low:high])
                mv.publish(step, to=folder, dtype="bfloat16")
                seconds, _ = _timed(encoder.encode, "w", live.tables["w"], live.version, False)
                encoded.append(4 * elements / seconds)
                followed: Any = view.tables["w"]
                apply = followed._apply

                def timed_apply(change: Any, apply: Any = apply) -> None:
                    applied.append(_timed(apply, change)[0])

                followed._apply = timed_apply
                view.wait(timeout=600)
                followed._apply = apply
                bits, changed = followed._values, view.changed("w")[0]
                copied.append(_timed(np.take, bits, changed)[0])
    sizes = [file.stat().st_size for file in sorted(Path(folder).glob("*.safetensors"))]
    return {
        "full_bytes": sizes[0],
        "difference_bytes": sizes[-1],
        "ratio": sizes[0] / sizes[-1],
        "encoded_per_second": statistics.median(encoded),
        "applied_seconds": statistics.median(applied),
        "copied_seconds": statistics.median(copied),
    }


def measure_trainer(seconds: float, folder: str) -> list[float]:
    """Return the speeds of a trainer that publishes to a folder, relative to one in memory."""
    speeds = []
    with mv.session(name="benchmark"):
        table = mv.ArrayTable(TRAINED, name="w")
        delta = np.ones(TRAINED, np.float32)

        def adds(to: str | None) -> float:
            begin = now = time.perf_counter()
            due, count = begin, 0
            while now < begin + seconds:
                if now >= due:
                    mv.publish(count, to=to)
                    due += 1
                table.add(delta)
                count += 1
                now = time.perf_counter()
            return count / (now - begin)

        adds(folder)
        for _ in range(2 * ROUNDS):
            in_memory = adds(None)
            speeds.append(adds(folder) / in_memory)
    return speeds


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        difference = measure_difference(options.elements, f"{folder}/difference")
        speeds = measure_trainer(options.seconds, f"{folder}/trainer")
    return {
        "environment": describe(None),
        "notes": [f"{options.elements:,} elements, {CHANGED:.1%} change in each step"],
        "difference": difference,
        "trainer_speeds": speeds,
    }


def show(measured: dict[str, Any]) -> None:
    """Print the report."""
    print_environment(measured)
    found, speeds = measured["difference"], measured["trainer_speeds"]
    encoded, applied = found["encoded_per_second"] / 1e9, found["applied_seconds"]
    rows = [
        ["a full publication, times the bytes of a difference", f"{found['ratio']:.1f}"],
        ["encoding a difference, GB of the table per second", f"{encoded:.2f}"],
        ["applying it, ms", f"{1e3 * applied:.1f}"],
        ["... times a copy of the changed elements", f"{applied / found['copied_seconds']:.2f}"],
        ["a trainer's adds, median of their speed in memory", f"{statistics.median(speeds):.3f}"],
    ]
    print_table("Publications to a folder", ["what", "measured"], rows)


def parse() -> argparse.Namespace:
    """Return the command-line options."""
    parser = make_parser(__doc__)
    option = parser.add_argument
    option("--elements", type=positive(int), default=100_000_000, help="of the published table")
    option("--seconds", type=positive(float), default=5.0, help="for each run of the trainer")
    option("--folder", default=None, help="where to make the folder of publications")
    return parser.parse_args()


def main() -> None:
    """Measure, and report as the options request."""
    options = parse()
    deliver(measure(options), options, show)


if __name__ == "__main__":
    main()
