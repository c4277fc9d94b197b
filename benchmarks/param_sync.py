"""Measure ParamSync against one pass over the memory in C, and against the same made of NumPy.

    python benchmarks/param_sync.py
    python benchmarks/param_sync.py --quick --json out.json

All three are timed in turns, sample by sample, because the speed of a machine drifts: the ratios
can be compared between runs and machines, the times less so. One worker.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np

import multiverso as mv
from c_threads import compile_source
from environment import describe
from multiverso.sync import ParamSync
from ranks import Ranks
from samples import Effort, Series, Statement, alternate

_SIZES = (1_000_000, 10_000_000)
_TENSORS = (1, 8, 160)
#: The bars: at most so many times the time of the pass, at least so many times as fast as NumPy.
_MOST_OF_PASS = 1.3
_LEAST_OF_NUMPY = 3.0


class NumPyWay:
    """Concatenate, subtract, add, get, split, set: what one writes without ParamSync."""

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
    """Return `count` written arrays of `size` float32 together, of different sizes."""
    ends = np.linspace(0, size, count + 1) ** 2 / size
    sizes = np.diff(ends.astype(np.int64))
    return [np.full(n, 0.5, np.float32) for n in sizes]


def _pass_of(library: ctypes.CDLL, size: int) -> Statement:
    function = library.memory_pass
    function.argtypes, function.restype = [ctypes.c_void_p] * 3 + [ctypes.c_int64], None
    arrays = [np.full(size, 0.5, np.float32) for _ in range(3)]
    names = {name: array.ctypes.data for name, array in zip("abc", arrays, strict=True)}
    return Statement(
        "C loop", "memory_pass(a, b, c, n)", 1, memory_pass=function, n=size, kept=arrays, **names
    )


def measure(size: int, count: int, library: ctypes.CDLL | None, effort: Effort) -> list[Series]:
    """Return the samples of ParamSync, of the NumPy way, and of the C loop if there is one."""
    ours = ParamSync(_tensors(size, count))
    numpy_way = NumPyWay(_tensors(size, count))
    candidates: list[Any] = [
        Statement("ParamSync", "sync.sync()", 1, sync=ours),
        Statement("NumPy", "way.sync()", 1, way=numpy_way),
    ]
    if library is not None:
        candidates.append(_pass_of(library, size))
    return alternate(candidates, Ranks(None), effort)


def _line(size: int, count: int, series: list[Series]) -> dict[str, Any]:
    ours, numpy_way, *rest = series
    faster = ours.speed_against(numpy_way)
    of_pass = 1 / ours.speed_against(rest[0]) if rest else None
    return {
        "size": size,
        "tensors": count,
        "medians": {one.name: one.median for one in series},
        "samples": {one.name: one.seconds for one in series},
        "times_of_pass": of_pass,
        "speed_against_numpy": faster,
        "passed": faster >= _LEAST_OF_NUMPY and (of_pass is None or of_pass <= _MOST_OF_PASS),
    }


def _show(line: dict[str, Any]) -> None:
    of_pass = "no C" if line["times_of_pass"] is None else f"{line['times_of_pass']:.2f}"
    print(
        f"{line['size']:>12,} {line['tensors']:>8} {line['medians']['ParamSync'] * 1e3:>9.3f} ms"
        f" {of_pass:>10} {line['speed_against_numpy']:>10.2f}"
        f"   {'PASS' if line['passed'] else 'below'}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark; see the text at the top of this file.

    Parameters
    ----------
    arguments : list of str, optional
        The command line without the program's name; `sys.argv` if not given.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", default=_SIZES)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    options = parser.parse_args(arguments)
    for size in options.sizes:
        if size < max(_TENSORS) ** 2:
            parser.error(f"expected sizes of at least {max(_TENSORS) ** 2}, received {size}")
    effort = Effort(5e-3, 1.0 if options.quick else 5.0, 7, 201)
    library = compile_source(Path(__file__).with_name("memory_pass.c"))
    print(f"{'parameters':>12} {'tensors':>8} {'ParamSync':>12} {'x C loop':>10} {'x NumPy':>10}")
    lines = []
    with mv.session():
        for size in options.sizes:
            for count in _TENSORS:
                lines.append(_line(size, count, measure(size, count, library, effort)))
                _show(lines[-1])
    print(f"bars: at most {_MOST_OF_PASS} x C loop, at least {_LEAST_OF_NUMPY} x NumPy's speed")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"environment": describe(None), "cases": lines}, indent=1)
        )


if __name__ == "__main__":
    main()
