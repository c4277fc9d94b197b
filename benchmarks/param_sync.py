"""Measure ParamSync against one pass over the memory in C, and against the same in NumPy.

    python benchmarks/param_sync.py
    python benchmarks/param_sync.py --quick --json out.json

Samples alternate, because the speed of a machine drifts: ratios are comparable between runs and
machines, times less so. The benchmark runs one worker.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

import multiverso as mv
from c_threads import compile_source
from environment import describe
from launcher import progress
from multiverso.sync import ParamSync
from options import deliver, make_parser
from ranks import Ranks
from samples import Effort, Series, Statement, alternate

_SIZES = (1_000_000, 10_000_000)
_TENSORS = (1, 8, 160)
#: The bars: longest time relative to the pass, and lowest speed relative to NumPy.
_MAX_OF_PASS = 1.3
_MIN_OF_NUMPY = 3.0


class NumPySync:
    """Concatenates, subtracts, adds, gets, splits and sets, as one would without ParamSync."""

    def __init__(self, tensors: list[np.ndarray[Any, Any]]) -> None:
        self._tensors = tensors
        self._last = np.concatenate([tensor.reshape(-1) for tensor in tensors])
        self._table = mv.ArrayTableHandler(self._last.size, self._last)

    def sync(self) -> None:
        """Do what `ParamSync.sync` does."""
        flat = np.concatenate([tensor.reshape(-1) for tensor in self._tensors])
        self._table.add(flat - self._last)
        self._last = self._table.get()
        ends = np.cumsum([tensor.size for tensor in self._tensors])[:-1]
        for tensor, part in zip(self._tensors, np.split(self._last, ends), strict=True):
            tensor[...] = part.reshape(tensor.shape)


def _tensors(size: int, count: int) -> list[np.ndarray[Any, Any]]:
    """Return `count` arrays of different sizes with `size` float32 in total."""
    ends = np.linspace(0, size, count + 1) ** 2 / size
    sizes = np.diff(ends.astype(np.int64))
    return [np.full(n, 0.5, np.float32) for n in sizes]


def _memory_pass(library: ctypes.CDLL, size: int) -> Statement:
    function = library.memory_pass
    function.argtypes, function.restype = [ctypes.c_void_p] * 3 + [ctypes.c_int64], None
    arrays = [np.full(size, 0.5, np.float32) for _ in range(3)]
    names = {name: array.ctypes.data for name, array in zip("abc", arrays, strict=True)}
    return Statement(
        "C loop", "memory_pass(a, b, c, n)", 1, memory_pass=function, n=size, kept=arrays, **names
    )


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
    ours, numpy_sync, *rest = series
    faster = ours.speed_against(numpy_sync)
    of_pass = 1 / ours.speed_against(rest[0]) if rest else None
    return {
        "size": size,
        "tensors": count,
        "medians": {one.name: one.median for one in series},
        "samples": {one.name: one.seconds for one in series},
        "times_of_pass": of_pass,
        "speed_against_numpy": faster,
        "passed": faster >= _MIN_OF_NUMPY and (of_pass is None or of_pass <= _MAX_OF_PASS),
    }


def _show(report: dict[str, Any]) -> None:
    print(f"{'parameters':>12} {'tensors':>8} {'ParamSync':>12} {'x C loop':>10} {'x NumPy':>10}")
    for line in report["cases"]:
        of_pass = "no C" if line["times_of_pass"] is None else f"{line['times_of_pass']:.2f}"
        print(
            f"{line['size']:>12,} {line['tensors']:>8}"
            f" {line['medians']['ParamSync'] * 1e3:>9.3f} ms"
            f" {of_pass:>10} {line['speed_against_numpy']:>10.2f}"
            f"   {'PASS' if line['passed'] else 'below'}"
        )
    print(f"bars: at most {_MAX_OF_PASS} x C loop, at least {_MIN_OF_NUMPY} x NumPy's speed")


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    parser = make_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", default=_SIZES)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    options = parser.parse_args()
    for size in options.sizes:
        if size < max(_TENSORS) ** 2:
            parser.error(f"expected sizes of at least {max(_TENSORS) ** 2}, received {size}")
    effort = Effort(5e-3, 1.0 if options.quick else 5.0, 7, 201)
    library = compile_source(Path(__file__).with_name("memory_pass.c"))
    steps = [(size, count) for size in options.sizes for count in _TENSORS]
    with mv.session():
        lines = [
            _line(size, count, measure(size, count, library, effort))
            for size, count in progress(steps, is_master=True)
        ]
    deliver({"environment": describe(None), "cases": lines}, options, _show)


if __name__ == "__main__":
    main()
