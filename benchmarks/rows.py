"""Measure gets and training steps on random rows of a large table against other libraries.

    python benchmarks/rows.py                      one worker
    python benchmarks/rows.py --ranks 1 2 4        workers on one table, one run after the other
    python benchmarks/rows.py --rows 10000000 --batches 65536
    python benchmarks/rows.py --keys               hash tables instead, at a load of 0.9

A step gets the rows of a batch and adds gradients to them with row-wise Adagrad. The ids of a batch
are uniform, or follow a Zipf distribution, so that some rows are in it many times. References are
measured if they are installed; each process of FBGEMM and of PyTorch has a table of its own, except
that "racing writes" is one PyTorch tensor in shared memory, which loses updates. Samples of all
candidates alternate, because the speed of a machine drifts.

With --keys, the references of a hash table are a matrix of as many rows, a dict of rows, Abseil's
flat_hash_map (libabsl-dev) and TensorFlow's hash table. "fetch" gives rows to the tenth of each
batch that is new, and its reference is a hash map of Abseil in parts with a lock each, of which the
least recently used of 64 rows is evicted.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multiverso as mv
import report
from bars import ROW_BARS, judge
from c_threads import compile_c_threads, compile_source
from comparisons import NUM_COL, OURS, Bench, Case
from environment import describe
from mpirun_jobs import launch_all, progress
from options import deliver, forwarded, make_parser, positive
from ranks import Ranks, Span, find_mpi
from samples import Candidate, Effort, Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROWS = [100_000, 1_000_000]
_BATCHES = [8_192, 65_536]
_EXPONENT = 1.05  # of the Zipf distribution
_NUM_SETS = 16  # batches, so that rows are not always in a cache
_RATE, _EPSILON = 0.01, 1e-7


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    option, number = parser.add_argument, positive(int)
    option("--ranks", type=number, nargs="+", metavar="N", help="numbers of ranks to measure")
    option("--rows", type=number, nargs="+", metavar="N", help="rows of the tables")
    option("--batches", type=number, nargs="+", metavar="N", help="ids of a batch")
    option("--keys", action="store_true", help="measure hash tables")
    option("--quick", action="store_true", help="fewer sizes and samples")
    option("--plot", type=Path, metavar="FILE", help="plot the speeds to FILE.png")
    option("--limit", type=float, default=1800.0, metavar="SECONDS", help="for one mpirun")
    return parser.parse_args()


def _batches(ids: str, rows: int, batch: int, rank: int) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(rank)
    if ids == "uniform":
        return [generator.integers(0, rows, batch) for _ in range(_NUM_SETS)]
    weights = np.cumsum(1.0 / np.arange(1, rows + 1) ** _EXPONENT)
    # The frequent rows are anywhere in the table, and the same for all ranks.
    places = np.random.default_rng(0).permutation(rows)
    draws = generator.random((_NUM_SETS, batch)) * weights[-1]
    return [places[np.searchsorted(weights, draw)] for draw in draws]


def _fbgemm(rows: int, gradients: Any, sets: list[Any], workers: int) -> Candidate | None:
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            EmbeddingLocation,
            SplitTableBatchedEmbeddingBagsCodegen,
        )

        spec = (rows, NUM_COL, EmbeddingLocation.HOST, ComputeDevice.CPU)
        tables = SplitTableBatchedEmbeddingBagsCodegen(
            [spec],
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=_RATE,
            eps=_EPSILON,
        )
        names = {"tables": tables, "offsets": torch.arange(len(gradients) + 1)}
        names |= {"gradients": torch.from_numpy(gradients)}
        names |= {"sets": itertools.cycle([torch.from_numpy(ids) for ids in sets])}
        statement = "tables(next(sets), offsets).backward(gradients)"
        return Statement("FBGEMM", statement, workers, **names)
    return None


def _sparse_torch(rows: int, gradients: Any, sets: list[Any], workers: int) -> Candidate | None:
    with contextlib.suppress(ImportError):
        import torch

        layer = torch.nn.Embedding(rows, NUM_COL, sparse=True)
        optimizer = torch.optim.Adagrad(layer.parameters(), _RATE)
        names = {"layer": layer, "optimizer": optimizer, "gradients": torch.from_numpy(gradients)}
        names |= {"sets": itertools.cycle([torch.from_numpy(ids) for ids in sets])}
        statement = "optimizer.zero_grad(); layer(next(sets)).backward(gradients); optimizer.step()"
        return Statement("torch sparse Adagrad", statement, workers, **names)
    return None


class _RacingWrites:
    """Row-wise Adagrad on a PyTorch tensor in memory that all ranks share, without locks."""

    def __init__(self, ranks: Ranks, rows: int, gradients: Any, sets: list[Any]) -> None:
        import torch

        mpi = ranks.mpi
        mine = rows * (NUM_COL + 1) * 4 if ranks.is_master else 0
        self._window = mpi.Win.Allocate_shared(mine, 4, comm=ranks.comm)
        memory = np.frombuffer(self._window.Shared_query(0)[0], np.float32)
        names = {
            "table": torch.from_numpy(memory[rows:].reshape(rows, NUM_COL)),
            "state": torch.from_numpy(memory[:rows]),
            "step": self._step,
            "gradients": torch.from_numpy(gradients),
            "sets": itertools.cycle([torch.from_numpy(ids) for ids in sets]),
        }
        if ranks.is_master:
            memory[:] = 1e-3  # touches every page
        statement = "step(table, state, next(sets), gradients)"
        self.candidate = Statement("racing writes", statement, ranks.size, **names)

    @staticmethod
    def _step(table: Any, state: Any, ids: Any, gradients: Any) -> Any:
        out = table[ids]
        state.index_add_(0, ids, gradients.square().mean(1))
        rates = -_RATE / (state[ids].sqrt() + _EPSILON)
        table.index_add_(0, ids, gradients * rates[:, None])
        return out

    def __enter__(self) -> Candidate:
        return self.candidate

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._window.Free()


def _use_one_thread() -> None:
    """Let PyTorch use one thread per worker, as Multiverso does."""
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)


def _case(bench: Bench, operation: str, ids: str, rows: int, batch: int) -> Case:
    ranks, workers = bench.ranks, bench.ranks.size
    sets = _batches(ids, rows, batch, ranks.rank)
    gradients, out = (np.full((batch, NUM_COL), v, np.float32) for v in (1e-3, 1.0))
    table = mv.MatrixTable(
        rows, NUM_COL, updater="rowwise_adagrad", learning_rate=_RATE, epsilon=_EPSILON
    )
    if ranks.is_master:
        table.add(np.full((rows, NUM_COL), 1e-3, np.float32))  # touches every page
    names: dict[str, Any] = {"np": np, "table": table, "gradients": gradients, "out": out}
    names["sets"] = itertools.cycle(sets)
    statement = "table.get(next(sets), out=out)"
    if operation == "step":
        statement = "i = next(sets); table.get(i, out=out); table.add(gradients, i)"
    candidates: list[Candidate] = [Statement(OURS, statement, workers, **names)]
    name = f"{operation} {ids}, {rows:,}"
    with contextlib.ExitStack() as stack:
        if operation == "get" and workers == 1:
            private = np.ones((rows, NUM_COL), np.float32)
            names |= {"private": private, "sets": itertools.cycle(sets)}
            take = "np.take(private, next(sets), axis=0, out=out, mode='clip')"
            candidates.append(Statement("np.take", take, 1, **names))
        if operation == "step":
            rivals = [rival(rows, gradients, sets, workers) for rival in (_fbgemm, _sparse_torch)]
            candidates += [rival for rival in rivals if rival is not None]
            with contextlib.suppress(ImportError):
                if workers > 1:
                    racing = _RacingWrites(ranks, rows, gradients, sets)
                    candidates.append(stack.enter_context(racing))
        all_sets = [batch for part in ranks.gather(sets) for batch in part]
        candidates += bench.threads(f"{operation} rows", (rows, NUM_COL), all_sets)
        return bench.measure(name, batch * NUM_COL, candidates)


def _flat_hash_map() -> ctypes.CDLL:
    """Return the references that use Abseil's hash map; raise ImportError if it is missing."""
    libraries = [f"-labsl_{name}" for name in ("raw_hash_set", "hash", "city", "low_level_hash")]
    source = Path(__file__).with_name("flat_hash_map.cc")
    library = compile_source(source, [*libraries, "-pthread"])
    if library is None:
        msg = "libabsl-dev"
        raise ImportError(msg)
    return library


class _FlatHashMap:
    """Rows that Abseil's hash map finds in C++, in private memory."""

    def __init__(self, keys: np.ndarray[Any, Any]) -> None:
        library = _flat_hash_map()
        pointer, i64 = ctypes.c_void_p, ctypes.c_int64
        library.flat_hash_map_create.argtypes = [pointer, i64, i64]
        library.flat_hash_map_create.restype = pointer
        library.flat_hash_map_get.argtypes = [pointer, pointer, i64, pointer]
        library.flat_hash_map_destroy.argtypes = [pointer]
        table = library.flat_hash_map_create(keys.ctypes.data, len(keys), NUM_COL)
        weakref.finalize(self, library.flat_hash_map_destroy, table)
        self._get, self._table = library.flat_hash_map_get, table

    def get(self, keys: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        self._get(self._table, keys.ctypes.data, len(keys), out.ctypes.data)


class _EvictingRows:
    """Rows in C++ that threads fetch, in shards with a lock and an Abseil hash map each."""

    name = "absl::flat_hash_map with locks"

    def __init__(
        self, ranks: Ranks, keys: np.ndarray[Any, Any], key_sets: list[np.ndarray[Any, Any]]
    ) -> None:
        self.workers = ranks.size
        self.statement = f"fetch by {ranks.size} threads from shards with locks"
        library = _flat_hash_map()
        self._is_master, self._calls = ranks.is_master, 0
        if not self._is_master:
            return
        pointer, i64 = ctypes.c_void_p, ctypes.c_int64
        library.evicting_rows_create.argtypes = [pointer, i64, i64, i64]
        library.evicting_rows_create.restype = pointer
        library.evicting_rows_destroy.argtypes = [pointer]
        library.evicting_rows_fetch.argtypes = [pointer, ctypes.c_int, i64, i64]
        library.evicting_rows_fetch.argtypes += [pointer, i64, i64, pointer]
        capacity = len(keys) * 10 // 9
        table = library.evicting_rows_create(keys.ctypes.data, len(keys), capacity, NUM_COL)
        weakref.finalize(self, library.evicting_rows_destroy, table)
        self._fetch, self._table, self._key_sets = library.evicting_rows_fetch, table, key_sets

    def run(self, calls: int) -> Span | None:
        """Let every thread fetch `calls` batches; return None except on the master."""
        if not self._is_master:
            return None
        span, sets = (ctypes.c_double * 2)(), self._key_sets
        addresses = (ctypes.c_void_p * len(sets))(*[keys.ctypes.data for keys in sets])
        count, self._calls = len(sets[0]), self._calls + 1
        batches = (addresses, len(sets), count, span)
        if self._fetch(self._table, self.workers, calls, self._calls, *batches) != 0:
            raise MemoryError(f"expected {self.workers} threads, but they could not be started")
        return Span(span[0], span[1])


class _DictOfRows:
    """Rows of a NumPy array, which a dict of Python finds."""

    def __init__(self, keys: np.ndarray[Any, Any]) -> None:
        self._rows = np.full((len(keys), NUM_COL), 1e-3, np.float32)
        self._places = {key: place for place, key in enumerate(keys.tolist())}

    def get(self, keys: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        places = self._places
        np.take(self._rows, [places[key] for key in keys.tolist()], 0, out, "clip")


def _tensorflow(keys: np.ndarray[Any, Any], sets: list[Any], workers: int) -> Candidate | None:
    with contextlib.suppress(ImportError):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, [0.0] * NUM_COL)
        for part in np.array_split(keys, max(len(keys) // 65_536, 1)):
            table.insert(part, np.full((len(part), NUM_COL), 1e-3, np.float32))
        names = {"table": table, "sets": itertools.cycle([tf.constant(ids) for ids in sets])}
        return Statement("TensorFlow hash table", "table.lookup(next(sets))", workers, **names)
    return None


def _case_of_keys(bench: Bench, operation: str, ids: str, rows: int, batch: int) -> Case:
    workers = bench.ranks.size
    keys = np.random.default_rng(1).integers(-(2**63), 2**63, rows)
    sets = _batches(ids, rows, batch, bench.ranks.rank)
    gradients, out = (np.full((batch, NUM_COL), v, np.float32) for v in (1e-3, 1.0))
    options = {"updater": "rowwise_adagrad", "learning_rate": _RATE, "epsilon": _EPSILON}
    # New keys would exceed the capacity.
    evict = "lru" if operation == "fetch" else None
    hashed = mv.HashTable(NUM_COL, rows * 10 // 9, evict=evict, **options)
    matrix = mv.MatrixTable(rows, NUM_COL, **options)
    for part in np.array_split(np.arange(rows), max(rows // 65_536, 1)):
        delta = np.full((len(part), NUM_COL), 1e-3, np.float32)
        hashed.add(delta, keys[part])
        matrix.add(delta, part)
    key_sets = [keys[places] for places in sets]
    news = np.random.default_rng(2 + bench.ranks.rank)

    def with_new_keys() -> Iterator[np.ndarray[Any, Any]]:
        for known in itertools.cycle(key_sets):
            known[::10] = news.integers(-(2**63), 2**63, len(known[::10]))
            yield known

    names: dict[str, Any] = {"gradients": gradients, "out": out}
    of_keys = {**names, "table": hashed, "sets": itertools.cycle(key_sets)}
    of_rows = {**names, "table": matrix, "sets": itertools.cycle(sets)}
    read = "table.get(next(sets), insert=False, out=out)"
    read_rows = "table.get(next(sets), out=out)"
    if operation == "fetch":
        of_keys["sets"] = with_new_keys()
        read = read_rows
    elif operation == "step":
        read = read_rows = "i = next(sets); table.get(i, out=out); table.add(gradients, i)"
    candidates: list[Candidate] = [
        Statement(OURS, read, workers, **of_keys),
        Statement("rows by number", read_rows, workers, **of_rows),
    ]
    if operation == "fetch":
        with contextlib.suppress(ImportError):
            candidates.append(_EvictingRows(bench.ranks, keys, key_sets))
    if operation == "get":
        lookup = "table.get(next(sets), out)"
        cycle = itertools.cycle(key_sets)
        names |= {"table": _DictOfRows(keys), "sets": cycle}
        candidates.append(Statement("dict of rows", lookup, workers, **names))
        with contextlib.suppress(ImportError):
            names |= {"table": _FlatHashMap(keys), "sets": itertools.cycle(key_sets)}
            candidates.append(Statement("absl::flat_hash_map", lookup, workers, **names))
        candidates += filter(None, [_tensorflow(keys, key_sets, workers)])
    return bench.measure(f"{operation} keys {ids}, {rows:,}", batch * NUM_COL, candidates)


def _plan(options: argparse.Namespace) -> Iterator[tuple[str, str, int, int]]:
    rows = options.rows or (_ROWS[-1:] if options.quick else _ROWS)
    batches = options.batches or (_BATCHES[:1] if options.quick else _BATCHES)
    for operation in ("get", "fetch", "step") if options.keys else ("get", "step"):
        yield from itertools.product([operation], ("uniform", "zipf"), rows, batches)


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this job; return the report on the master, else None."""
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    library = compile_c_threads() if ranks.is_master else None
    has_c = ranks.gather(library is not None)[0]
    notes = [] if problem is None else [problem]
    if not has_c:
        notes.append("no C threads: no C compiler was found")
    for module, rivals in (("torch", "torch, racing writes"), ("fbgemm_gpu", "FBGEMM")):
        try:
            __import__(module)
        except ImportError:
            notes.append(f"no {rivals}: {module} is not installed")
    _use_one_thread()
    bench = Bench(ranks, Effort.for_ranks(ranks.size, options.quick), library, has_c)
    with mv.session():
        measure = _case_of_keys if options.keys else _case
        cases = [measure(bench, *each) for each in progress(list(_plan(options)), ranks.is_master)]
    if not ranks.is_master:
        return None
    run = report.to_json(cases, judge(cases, ranks.size, ROW_BARS), ranks.size)
    return {"environment": describe(mpi), "notes": notes, "runs": [run]}


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = _parse()
    if options.ranks:
        arguments = forwarded(options, "batches", "keys", "quick", "rows")
        measured = launch_all(Path(__file__).resolve(), options.ranks, arguments, options.limit)
    else:
        measured = _measure(options)
    deliver(measured, options, report.show, report.plot_bars)


if __name__ == "__main__":
    main()
