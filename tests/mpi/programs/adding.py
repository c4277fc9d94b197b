"""Cases about concurrent adds, none of which may be lost."""

import os
import random

import numpy as np
import worker
from cases import SEED, case, equal, repeats

import multiverso as mv

#: Adds of each rank to the large array; use 10 000 for a long run.
LARGE_ADDS = int(os.environ.get("MULTIVERSO_TEST_LARGE_ADDS", "40"))


@case
def concurrent_adds_to_arrays_are_exact():
    small = repeats(10_000)
    for size, adds in ((1, small), (3, small), (4, small), (1_000_003, LARGE_ADDS)):
        table = mv.ArrayTableHandler(size)
        ones = np.ones(size, np.float32)
        mv.barrier()
        for _ in range(adds):
            table.add(ones)
        mv.barrier()
        equal(table.get(), np.full(size, adds * mv.size()))


@case
def concurrent_adds_to_rows_with_duplicates_are_exact():
    matrix = mv.MatrixTableHandler(7, 5)
    ids = np.array([0, 3, 3, 6, 0, 3])
    ones = np.ones((6, 5), np.float32)
    mv.barrier()
    adds = repeats(10_000)
    for _ in range(adds):
        matrix.add(ones, ids)
    mv.barrier()
    expected = np.zeros((7, 5))
    np.add.at(expected, ids, adds * mv.size())
    equal(matrix.get(), expected)


@case
def add_get_returns_every_state_once():
    table = mv.ArrayTableHandler(1, dtype="int64")
    rounds = 3000
    mv.barrier()
    seen = [int(table.add_get(np.ones(1, np.int64))[0]) for _ in range(rounds)]
    equal(seen, sorted(set(seen)))
    states = mv.ArrayTableHandler(mv.size() * rounds + 1, dtype="int32")
    seen_counts = np.zeros(states.size, np.int32)
    seen_counts[seen] = 1
    states.add(seen_counts)
    mv.barrier()
    equal(states.get(), [0] + [1] * (states.size - 1))


@case
def prepared_calls_of_all_ranks_are_exact():
    table = mv.ArrayTableHandler(50_001, dtype="int64")
    delta, out = np.ones(50_001, np.int64), np.empty(50_001, np.int64)
    push, pull = table.prepare_add(delta), table.prepare_get(out)
    both = table.prepare_add_get(delta, out)
    mv.barrier()
    adds = repeats(200)
    for count in range(1, adds):
        push()
        assert both() is out
        assert (out >= 2 * count).all()
    mv.barrier()
    equal(pull(), np.full(50_001, 2 * (adds - 1) * mv.size()))


@case
def random_programs_agree_with_a_model():
    for seed in range(SEED, SEED + 12):
        try:
            _random_program(seed)
        except BaseException:
            worker.report(seed=seed)
            raise


def _random_program(seed):
    common = random.Random(seed)  # the same on every rank
    dtype = common.choice(("float32", "float64", "int32", "int64"))
    rows, columns = common.randrange(1, 30), common.choice((1, 2, 5, 64, 3000))
    expected = np.random.default_rng(seed).integers(-9, 10, (rows, columns)).astype(dtype)
    matrix = mv.MatrixTableHandler(rows, columns, expected, dtype=dtype)
    for phase in range(common.randrange(1, 5)):
        # Integers make the result independent of the order in which the adds arrive.
        for rank in range(mv.size()):
            added = _program_of(rank, seed + 1000 * phase, rows, columns, dtype, matrix)
            expected = expected + added
        mv.barrier()
        equal(matrix.get(), expected)
        ids = [common.randrange(rows) for _ in range(5)]
        equal(matrix.get(ids, sync=True), expected[ids])
        mv.barrier()


def _program_of(rank, seed, rows, columns, dtype, matrix):
    """Return the sum of the adds of the program of `rank`, and run it if that is this rank."""
    rng = random.Random(seed * 31 + rank)
    value_rng = np.random.default_rng(seed * 31 + rank)
    is_this_rank = rank == mv.rank()
    total = np.zeros((rows, columns), dtype)
    for _ in range(rng.randrange(25)):
        kind = rng.randrange(4)
        ids = [rng.randrange(rows) for _ in range(rng.randrange(2 * rows))]
        row_delta = value_rng.integers(-9, 10, (len(ids), columns)).astype(dtype)
        whole_delta = value_rng.integers(-9, 10, (rows, columns)).astype(dtype)
        if kind == 0:
            np.add.at(total, ids, row_delta)
            if is_this_rank:
                matrix.add(row_delta, ids)
        elif kind == 1:
            total += whole_delta
            if is_this_rank:
                matrix.add(whole_delta)
        elif kind == 2:
            total += whole_delta
            if is_this_rank:
                equal(matrix.add_get(whole_delta).shape, (rows, columns))
        elif is_this_rank:
            equal(matrix.get(ids).shape, (len(ids), columns))
    return total
