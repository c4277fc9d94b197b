"""Measure a sync of ParamSync against one loop over the memory in C, and a sync in plain NumPy.

    python benchmarks/param_sync.py
    python benchmarks/param_sync.py --quick --json out.json

The C loop (memory_pass.c) does the minimal work of a sync; NumPy does the work with one temporary
array per step. Samples alternate, because the speed of a machine drifts: ratios are comparable
between runs and machines, times less so. The benchmark runs one worker.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

import multiverso as mv
from c_threads import compile_source
from environment import describe
from mpirun_jobs import progress
from multiverso.sync import ParamSync
from options import deliver, make_parser
from ranks import Ranks
from samples import Effort, Series, Statement, alternate

_SIZES = (1_000_000, 10_000_000)
_TENSOR_COUNTS = (1, 8, 160)
#: The bars: longest time relative to the C loop, and lowest speed relative to NumPy.
_MAX_TIME_RATIO_TO_C = 1.3
_MIN_SPEED_RATIO_TO_NUMPY = 3.0


class NumPySync:
    """Syncs tensors with a table, as a program would without ParamSync."""

    def __init__(self, tensors: list[np.ndarray[Any, Any]]) -> None:
        self._tensors = tensors
        self._last_values = np.concatenate([tensor.reshape(-1) for tensor in tensors])
        self._table = mv.ArrayTable(self._last_values.size, self._last_values)

    def sync(self) -> None:
        """Add the changes since the last sync to the table, and take the table's values."""
        flat = np.concatenate([tensor.reshape(-1) for tensor in self._tensors])
        self._table.add(flat - self._last_values)
        self._last_values = self._table.get()
        ends = np.cumsum([tensor.size for tensor in self._tensors])[:-1]
        for tensor, part in zip(self._tensors, np.split(self._last_values, ends), strict=True):
            tensor[...] = part.reshape(tensor.shape)


def _tensors(size: int, count: int) -> list[np.ndarray[Any, Any]]:
    """Return `count` arrays of different sizes with `size` float32 elements in total."""
    ends = np.linspace(0, size, count + 1) ** 2 / size  # the sizes grow linearly
    sizes = np.diff(ends.astype(np.int64))
    return [np.full(n, 0.5, np.float32) for n in sizes]


def _memory_pass(library: ctypes.CDLL, size: int) -> Statement:
    function = library.memory_pass
    function.argtypes, function.restype = [ctypes.c_void_p] * 3 + [ctypes.c_int64], None
    arrays = [np.full(size, 0.5, np.float32) for _ in range(3)]
    names: dict[str, Any] = {
        name: array.ctypes.data for name, array in zip("abc", arrays, strict=True)
    }
    # The statement gets addresses, so the name `owners` only keeps the arrays alive.
    names |= {"memory_pass": function, "n": size, "owners": arrays}
    return Statement("C loop", "memory_pass(a, b, c, n)", 1, **names)


def measure(size: int, count: int, library: ctypes.CDLL | None, effort: Effort) -> list[Series]:
    """Return the samples of ParamSync, of NumPy and, if available, of the C loop."""
    ours = ParamSync(_tensors(size, count))
    numpy_sync = NumPySync(_tensors(size, count))
    candidates: list[Any] = [
        Statement("ParamSync", "sync.sync()", 1, sync=ours),
        Statement("NumPy", "sync.sync()", 1, sync=numpy_sync),
    ]
    if library is not None:
        candidates.append(_memory_pass(library, size))
    return alternate(candidates, Ranks(None), effort)


def _line(size: int, count: int, series: list[Series]) -> dict[str, Any]:
    ours, numpy_sync, *c_loop = series
    speed_ratio = ours.speed_against(numpy_sync)
    time_ratio = 1 / ours.speed_against(c_loop[0]) if c_loop else None
    is_near_c = time_ratio is None or time_ratio <= _MAX_TIME_RATIO_TO_C
    return {
        "size": size,
        "tensors": count,
        "medians": {candidate.name: candidate.median for candidate in series},
        "samples": {candidate.name: candidate.seconds for candidate in series},
        "times_of_pass": time_ratio,
        "speed_against_numpy": speed_ratio,
        "passed": is_near_c and speed_ratio >= _MIN_SPEED_RATIO_TO_NUMPY,
    }


def _show(report: dict[str, Any]) -> None:
    print("  parameters  tensors    ParamSync  time/C loop  speed/NumPy")
    for line in report["cases"]:
        time_ratio = "no C" if line["times_of_pass"] is None else f"{line['times_of_pass']:.2f}"
        print(
            f"{line['size']:>12,} {line['tensors']:>8}"
            f" {line['medians']['ParamSync'] * 1e3:>9.3f} ms"
            f" {time_ratio:>12} {line['speed_against_numpy']:>12.2f}"
            f"   {'PASS' if line['passed'] else 'below'}"
        )
    print(f"bars: at most {_MAX_TIME_RATIO_TO_C} times the time of the C loop, "
          f"at least {_MIN_SPEED_RATIO_TO_NUMPY} times the speed of NumPy")  # fmt: skip


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    parser = make_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", default=_SIZES)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    options = parser.parse_args()
    # The smallest of n tensors has size / n^2 elements (see `_tensors`), which must be at least 1.
    smallest = max(_TENSOR_COUNTS) ** 2
    if min(options.sizes) < smallest:
        parser.error(f"expected sizes of at least {smallest}, received {min(options.sizes)}")
    seconds = 1.0 if options.quick else 5.0
    effort = Effort(sample_seconds=5e-3, case_seconds=seconds, min_rounds=7, max_rounds=201)
    library = compile_source(Path(__file__).with_name("memory_pass.c"))
    steps = [(size, count) for size in options.sizes for count in _TENSOR_COUNTS]
    with mv.session():
        lines = [
            _line(size, count, measure(size, count, library, effort))
            for size, count in progress(steps, is_master=True)
        ]
    deliver({"environment": describe(None), "cases": lines}, options, _show)


if __name__ == "__main__":
    main()
