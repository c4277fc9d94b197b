"""Aggregate: arrays of any size, dtype and layout, in all modes."""

import functools
import random

import numpy as np
import worker
from cases import SEED, TIMEOUT, equal, raises, repeats
from modes import case, same_bits
from round_model import DTYPES, values_of

import multiverso as mv

#: Sizes in bytes at which the algorithm of a sum may change.
EDGES = [2**power for power in (14, 17, 18, 19, 20, 21, 22)]


#: The number of random values that larger arrays repeat. No power of two is a multiple of it.
PERIOD = 99_991


def _parts(count, dtype, seed):
    """Return the array of each worker, and their sum in worker order."""
    parts = []
    for worker_id in range(mv.num_workers()):
        rng = np.random.default_rng([seed, worker_id])
        parts.append(np.resize(values_of(rng, min(count, PERIOD), dtype), count))
    return parts, functools.reduce(np.add, parts)


def _aggregate(parts, expected, count):
    mine = parts[mv.worker_id()][:count].copy()
    assert mv.aggregate(mine) is mine
    same_bits(mine, expected[:count])


@case()
def aggregate_sums_any_size_and_dtype_in_worker_order():
    rng = random.Random(SEED)
    for dtype in DTYPES:
        counts = [1, 2, 3, 17, 3 * EDGES[-1] // np.dtype(dtype).itemsize + 5]
        for edge in EDGES:
            counts += [edge // np.dtype(dtype).itemsize + more for more in (-1, 0, 1)]
        rng.shuffle(counts)
        parts, expected = _parts(max(counts), dtype, SEED)
        for count in counts:
            _aggregate(parts, expected, count)


@case()
def aggregate_in_all_modes_between_calls_on_tables():
    mv.shutdown()
    for mode in ({}, {"sync": True}, {"staleness": 2}):
        with mv.session(**mode, timeout=TIMEOUT):
            table = mv.ArrayTableHandler(10)
            for number in range(1, repeats(100)):
                table.add(np.ones(10))
                _aggregate(*_parts(number, "float64", number), number)
                assert table.get(sync=True)[0] == number * mv.num_workers()
                mv.barrier()
    mv.init(timeout=TIMEOUT)


@case()
def aggregate_of_any_shape_and_layout():
    n = mv.num_workers()
    for array in (
        np.ones((3, 4, 5), np.float32),
        np.asfortranarray(np.ones((30, 40))),
        np.ones(100, np.int32)[::3],
        np.ones((6, 6), np.int64).T[1:],
        np.ones(()),
    ):
        assert mv.aggregate(array) is array
        equal(array, np.full(array.shape, n))


@case()
def aggregate_with_server_only_ranks():
    if worker.SIZE == 1:
        return
    mv.shutdown()
    mv.init(role="server" if worker.RANK == 0 else "all", timeout=TIMEOUT)
    if worker.RANK == 0:
        raises(mv.StateError, lambda: mv.aggregate(np.ones(3)), "server")
    else:
        for count in (3, 20_000):
            equal(mv.aggregate(np.ones(count)), np.full(count, mv.size() - 1))
    mv.barrier()


@case()
def aggregate_rejects_invalid_arrays():
    for wrong in (np.ones(3, np.float16), np.ones(3, bool), [1.0, 2.0], 1.0, "three", None):
        raises(TypeError, lambda wrong=wrong: mv.aggregate(wrong))
    frozen = np.ones(3)
    frozen.flags.writeable = False
    raises(ValueError, lambda: mv.aggregate(frozen))
    equal(mv.aggregate(np.ones(3)), [mv.num_workers()] * 3)
