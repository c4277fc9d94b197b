"""Cases about `mv.aggregate`: arrays of any size, dtype and memory layout, in all modes."""

import itertools
import random

import ml_dtypes
import numpy as np
import worker
from cases import SEED, TIMEOUT, equal, raises, repeats
from modes import case, same_bits

import multiverso as mv
from machine.pairwise import pairwise_sum
from machine.tables import values_of

DTYPES = ("float32", "float64", "int32", "int64")

#: Sizes in bytes at which an aggregation may change its algorithm.
EDGES = [2**power for power in (14, 17, 18, 19, 20, 21, 22)]

#: Larger arrays repeat this many random values. It is odd, so that two pieces of an array at
#: multiples of a power of two differ, and an exchange of the two is detected.
PERIOD = 99_991


def _arrays_and_sum(count, dtype, seed):
    """Return the arrays of all workers, and their sum."""
    arrays = []
    for worker_id in range(mv.num_workers()):
        rng = np.random.default_rng([seed, worker_id])
        arrays.append(np.resize(values_of(rng, min(count, PERIOD), dtype), count))
    return arrays, pairwise_sum(arrays)


def _check_aggregate(arrays, expected, count, op="sum"):
    mine = arrays[mv.worker_id()][:count].copy()
    assert mv.aggregate(mine, op) is mine
    same_bits(mine, expected[:count] / len(arrays) if op == "mean" else expected[:count])


@case()
def aggregate_sums_and_averages_any_size_and_dtype_pairwise():
    rng = random.Random(SEED)
    for dtype in DTYPES:
        counts = [1, 2, 3, 17, 3 * EDGES[-1] // np.dtype(dtype).itemsize + 5]
        for edge in EDGES:
            counts += [edge // np.dtype(dtype).itemsize + offset for offset in (-1, 0, 1)]
        rng.shuffle(counts)
        arrays, expected = _arrays_and_sum(max(counts), dtype, SEED)
        for count, op in itertools.product(counts, ("sum", "mean")[: 1 + (dtype[0] == "f")]):
            _check_aggregate(arrays, expected, count, op)


#: NumPy's functions for the operations.
OPERATIONS = {
    "sum": np.add,
    "mean": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _values(rng, count, dtype):
    """Return random values; some floats are NaN, and sums of 16-bit floats need 32 bits."""
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    values = values_of(rng, count, "float32" if dtype.itemsize == 2 else dtype)
    values[rng.random(count) < 0.01] = np.nan
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _result(arrays, op):
    """Return what `mv.aggregate` makes of the arrays of all workers."""
    dtype = arrays[0].dtype
    if dtype.itemsize == 2 and dtype.kind != "i":
        arrays = [array.astype(np.float32) for array in arrays]
    with np.errstate(all="ignore"):
        result = pairwise_sum(arrays, OPERATIONS[op])
        if op == "mean":
            result = result / result.dtype.type(len(arrays))
        return result.astype(dtype)


@case()
def aggregate_with_every_operation_and_dtype():
    rng = random.Random(SEED)
    dtypes = [*DTYPES, "float16", ml_dtypes.bfloat16, "int8", "int16", "uint8", "bool"]
    for number in range(repeats(240)):
        dtype, op = np.dtype(rng.choice(dtypes)), rng.choice(list(OPERATIONS))
        is_float = dtype.kind not in "iub"
        # Floats of 16 bits are summed in 32.
        edge = rng.choice(EDGES[:5]) // dtype.itemsize // rng.choice([1, 2])
        count = rng.choice([0, 1, rng.randrange(40), edge + rng.randrange(-1, 2)])
        arrays = [
            _values(np.random.default_rng([SEED, number, worker_id]), count, dtype)
            for worker_id in range(mv.num_workers())
        ]
        mine = arrays[mv.worker_id()].copy()
        if (op == "mean" and not is_float) or (op in ("and", "or", "xor") and is_float):
            raises(TypeError, lambda mine=mine, op=op: mv.aggregate(mine, op), f"op {op} needs")
            continue
        assert mv.aggregate(mine, op) is mine
        expected = _result(arrays, op)
        if is_float:  # The bits of a NaN have no meaning.
            equal(np.isnan(mine), np.isnan(expected))
            mine[np.isnan(mine)] = expected[np.isnan(expected)] = 0
        same_bits(mine, expected)


@case()
def workers_with_different_operations_are_told():
    if mv.num_workers() == 1:
        return
    array, op = np.ones(10, np.int32), "max" if mv.worker_id() == 0 else "min"
    raises(
        mv.errors.MismatchError,
        lambda: mv.aggregate(array, op),
        "op max, rank 1 of 10 int32, op min",
    )
    equal(mv.aggregate(array), [mv.num_workers()] * 10)


@case()
def aggregate_in_all_modes_between_calls_on_tables():
    mv.shutdown()
    for mode in ({}, {"sync": True}, {"staleness": 2}):
        with mv.session(**mode, timeout=TIMEOUT):
            table = mv.ArrayTableHandler(10)
            for count in range(1, repeats(100)):
                table.add(np.ones(10))
                _check_aggregate(*_arrays_and_sum(count, "float64", seed=count), count)
                assert table.get(sync=True)[0] == count * mv.num_workers()
                mv.barrier()
    mv.init(timeout=TIMEOUT)


@case()
def aggregate_of_any_shape_and_layout():
    for array in (
        np.ones((3, 4, 5), np.float32),
        np.asfortranarray(np.ones((30, 40))),
        np.ones(100, np.int32)[::3],
        np.ones((6, 6), np.int64).T[1:],
        np.ones(()),
    ):
        assert mv.aggregate(array) is array
        equal(array, np.full(array.shape, mv.num_workers()))


@case()
def aggregate_with_server_only_ranks():
    if worker.SIZE == 1:
        return
    mv.shutdown()
    mv.init(role="server" if worker.RANK == 0 else "all", timeout=TIMEOUT)
    if worker.RANK == 0:
        raises(mv.errors.StateError, lambda: mv.aggregate(np.ones(3)), "server")
    else:
        for count in (3, 20_000):
            equal(mv.aggregate(np.ones(count)), np.full(count, mv.size() - 1))
    mv.barrier()
