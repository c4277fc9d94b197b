"""The cases of tables.py: one operation at one size, by Multiverso and by its references."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import multiverso as mv
from c_threads import CThreads
from mpi_references import MessageServer, RmaTable
from samples import Candidate, Series, Statement, alternate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ranks import Ranks
    from samples import Effort

OURS = "Multiverso"
NUM_COL = 64
NUM_IDS = 10_000


@dataclass
class Case:
    """An operation, its size and its measurements.

    Attributes
    ----------
    operation : str
        "get", "add", "add_get", "get rows", "add rows" or "barrier".
    size : int
        Elements moved by one call; 0 for the barrier.
    series : list of Series
        Multiverso first, then its references.
    """

    operation: str
    size: int
    series: list[Series]

    @property
    def ours(self) -> Series:
        """The measurements of Multiverso."""
        return self.series[0]

    @property
    def references(self) -> list[Series]:
        """The measurements of the references."""
        return self.series[1:]

    def speed_against(self, reference: str) -> float | None:
        """Return the speed relative to a reference; None if that was not measured."""
        series = self._named(reference)
        return None if series is None else self.ours.speed_against(series)

    def interval_against(self, reference: str) -> tuple[float, float] | None:
        """Return the confidence interval of `speed_against`; see `Series.interval_against`."""
        series = self._named(reference)
        return None if series is None else self.ours.interval_against(series)

    def _named(self, reference: str) -> Series | None:
        return next((series for series in self.references if series.name == reference), None)


@dataclass(frozen=True)
class Bench:
    """The processes, the effort and the compiled C threads, which every case needs."""

    ranks: Ranks
    effort: Effort
    library: ctypes.CDLL | None
    has_c: bool

    def threads(self, operation: str, shape: tuple[int, ...], ids: Any = ()) -> list[Candidate]:
        """Return the C threads as a reference if a C compiler is installed."""
        if not self.has_c:
            return []
        ranks = self.ranks
        return [CThreads(self.library, operation, ranks.size, shape, ranks.is_master, ids)]

    def measure(self, operation: str, size: int, candidates: list[Candidate]) -> Case:
        """Time the candidates, Multiverso first."""
        return Case(operation, size, alternate(candidates, self.ranks, self.effort))


def _memcpy() -> Any:
    """Return C's memcpy as a ctypes function with minimal overhead."""
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    memcpy.restype = ctypes.c_void_p
    return memcpy


def array_case(bench: Bench, operation: str, size: int) -> Case:
    """Measure get, add or add_get of an array table of `size` float32 elements.

    The references are C threads; for add_get the equivalents in MPI; and, with one worker, NumPy on
    private memory and, for get and add of small sizes, memcpy.
    """
    ranks, workers = bench.ranks, bench.ranks.size
    table = mv.ArrayTable(size, init_value=np.ones(size, np.float32))
    delta, out = np.full(size, 1e-3, np.float32), np.ones(size, np.float32)
    private = np.ones(size, np.float32)
    names = {"np": np, "table": table, "delta": delta, "out": out, "private": private}
    ours, numpy_name, numpy_statement = {
        "get": ("table.get(out=out)", "np.copyto", "np.copyto(out, private)"),
        "add": ("table.add(delta)", "np.add", "np.add(private, delta, out=private)"),
        "add_get": (
            "table.add_get(delta, out=out)",
            "np.add + np.copyto",
            "np.add(private, delta, out=private); np.copyto(out, private)",
        ),
    }[operation]
    with contextlib.ExitStack() as stack:
        candidates: list[Candidate] = [Statement(OURS, ours, workers, **names)]
        if workers == 1:
            candidates.append(Statement(numpy_name, numpy_statement, 1, **names))
            if size <= 10_000 and operation != "add_get":
                addresses = {"to": out.ctypes.data, "source": private.ctypes.data}
                arguments = {**addresses, "nbytes": private.nbytes, "memcpy": _memcpy()}
                statement = "memcpy(to, source, nbytes)"
                candidates.append(Statement("memcpy", statement, 1, **arguments))
        if operation == "add_get" and ranks.mpi is not None:
            candidates.append(stack.enter_context(RmaTable(ranks, size)))
            if workers > 1:
                candidates.append(MessageServer(ranks, size))
        candidates += bench.threads(operation, (size,))
        return bench.measure(operation, size, candidates)


def _row_sets(num_row: int, worker: int) -> list[np.ndarray[Any, Any]]:
    """Return several sets of random row ids, so that rows are not always in a cache."""
    generator = np.random.default_rng(worker)
    return [generator.integers(0, num_row, NUM_IDS) for _ in range(32)]


def row_case(bench: Bench, operation: str, num_row: int) -> Case:
    """Measure "get rows" or "add rows": 10 000 random rows of 64 float32 elements.

    The references are C threads and, with one worker, NumPy's indexing on private memory.
    """
    ranks, workers = bench.ranks, bench.ranks.size
    table = mv.MatrixTable(num_row, NUM_COL)
    delta, out = (np.full((NUM_IDS, NUM_COL), v, np.float32) for v in (1e-3, 1.0))
    sets = _row_sets(num_row, ranks.rank)
    if ranks.is_master:
        # Touches every page of the table before the measurement.
        table.add(np.ones((num_row, NUM_COL), np.float32))
    names: dict[str, Any] = {"np": np, "table": table, "delta": delta, "out": out}
    names["sets"] = itertools.cycle(sets)
    ours = {
        "get rows": "table.get(next(sets), out=out)",
        "add rows": "table.add(delta, next(sets))",
    }[operation]
    candidates: list[Candidate] = [Statement(OURS, ours, workers, **names)]
    if workers == 1:
        names["private"] = np.ones((num_row, NUM_COL), np.float32)
        names["sets"] = itertools.cycle(sets)
        statements = {
            # With `out`, np.take would buffer its result unless mode="clip" is given.
            "get rows": {
                "np.take": "np.take(private, next(sets), axis=0, out=out, mode='clip')",
                "indexing": "private[next(sets)]",
            },
            "add rows": {"indexed +=": "private[next(sets)] += delta"},
        }[operation]
        candidates += [Statement(name, text, 1, **names) for name, text in statements.items()]
    candidates += bench.threads(operation, (num_row, NUM_COL), sets)
    return bench.measure(operation, NUM_IDS * NUM_COL, candidates)


def barrier_case(bench: Bench) -> Case:
    """Measure a barrier against that of MPI."""
    ranks = bench.ranks
    candidates: list[Candidate] = [Statement(OURS, "mv.barrier()", ranks.size, mv=mv)]
    if ranks.comm is not None:
        candidates.append(Statement("MPI Barrier", "comm.Barrier()", ranks.size, comm=ranks.comm))
    return bench.measure("barrier", 0, candidates)


def plan(bench: Bench, sizes: list[int], num_row: int) -> Iterator[Callable[[], Case]]:
    """Yield the function that measures each case, in the same order on all ranks."""
    for operation in ("get", "add", "add_get"):
        for size in sizes:
            yield functools.partial(array_case, bench, operation, size)
    for operation in ("get rows", "add rows"):
        yield functools.partial(row_case, bench, operation, num_row)
    yield functools.partial(barrier_case, bench)
