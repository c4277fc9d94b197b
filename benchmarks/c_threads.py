"""Plain C threads that do the operations of a table, as a candidate of a benchmark."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ranks import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

_SOURCE = Path(__file__).with_suffix(".c")
_OPERATIONS = {"get": 0, "add": 1, "add_get": 2, "get rows": 3, "add rows": 4, "step rows": 5}
# The parts of -ffast-math that vectorise a sum. The whole would make the program that loads the
# library take numbers below the normal range for zero. Some compilers do not know all flags.
_VECTORISE = ["-fno-math-errno", "-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math"]
_FLAGS = (["-O3", "-march=native", *_VECTORISE], ["-O3"])


def compile_c_threads() -> ctypes.CDLL | None:
    """Compile and load c_threads.c; return None if that is impossible."""
    library = compile_source(_SOURCE)
    return None if library is None else _declare(library)


def compile_source(source: Path, libraries: Sequence[str] = ()) -> ctypes.CDLL | None:
    """Compile and load a file in C or C++; return None without a compiler, or if it fails.

    The file of the library is temporary, because it is compiled for this processor only.
    """
    names = ("c++", "g++", "clang++") if source.suffix == ".cc" else ("cc", "gcc", "clang")
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="multiverso-benchmark-") as folder:
        target = Path(folder, f"{source.stem}.so")
        for flags in _FLAGS:
            command = [compiler, *flags, "-shared", "-fPIC", "-pthread", str(source)]
            command += ["-o", str(target), *libraries]
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode == 0:
                return ctypes.CDLL(str(target))
    return None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, i32, i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    run = library.c_threads_run
    run.restype = i32
    run.argtypes = [i32, i32, i64, i64, *[pointer, i64], *[pointer] * 3, *[i64] * 2, *[pointer] * 2]
    return library


def _addresses(arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])


class CThreads:
    """One thread for each worker on one table in private memory, without locks.

    The master starts the threads while the other ranks sleep.

    Parameters
    ----------
    library : ctypes.CDLL or None
        The result of `compile_c_threads`; only the master needs it.
    operation : str
        "get", "add", "add_get", "get rows", "add rows" or "step rows", a get and row-wise Adagrad.
    workers : int
        The number of threads.
    shape : tuple of int
        Shape of the float32 table: (elements,) or (rows, columns).
    is_master : bool
        Whether this rank runs the threads; the others allocate nothing.
    id_sets : sequence of int64 arrays of shape (n,), optional
        Row ids for the row operations, one set per call.
    """

    def __init__(
        self,
        library: ctypes.CDLL | None,
        operation: str,
        workers: int,
        shape: tuple[int, ...],
        is_master: bool,
        id_sets: Sequence[np.ndarray[Any, Any]] = (),
    ) -> None:
        plural = "s" if workers > 1 else ""
        self.name = f"{workers} C thread{plural}"
        self.statement = f"{operation} by {workers} thread{plural} on one array, no locks"
        self.workers = workers
        self._library = library
        self._is_master = is_master
        self._calls = 0
        if not is_master:
            return
        num_ids = len(id_sets[0]) if id_sets else 0
        moved_shape = (num_ids, shape[-1]) if id_sets else shape
        self._table = np.ones(shape, np.float32)
        self._state = np.zeros(shape[0], np.float32)  # of steps
        # Writing to the arrays touches their pages before the measurement.
        self._deltas = [np.full(moved_shape, 1e-3, np.float32) for _ in range(workers)]
        self._outs = [np.ones(moved_shape, np.float32) for _ in range(workers)]
        # Each thread starts at another set, so that no two access the same rows at once.
        step = max(1, len(id_sets) // workers)
        self._ids = [
            id_sets[(t * step + i) % len(id_sets)]
            for t in range(workers)
            for i in range(len(id_sets))
        ]
        self._arguments = (
            _OPERATIONS[operation],
            workers,
            self._table.ctypes.data,
            shape[-1],
            _addresses(self._deltas),
            _addresses(self._outs),
            _addresses(self._ids),
            len(id_sets),
            num_ids,
            self._state.ctypes.data,
        )

    def run(self, calls: int) -> Span | None:
        """Let every thread do the operation `calls` times; return None except on the master."""
        if not self._is_master or self._library is None:
            return None
        operation, workers, table, count, *rest = self._arguments
        span = (ctypes.c_double * 2)()
        first, self._calls = self._calls, self._calls + calls
        run = self._library.c_threads_run
        if run(operation, workers, first, calls, table, count, *rest, span) != 0:
            raise MemoryError(f"expected {workers} threads, but they could not be started")
        return Span(span[0], span[1])
