"""Cases about concurrent adds, none of which may be lost."""

import os

import numpy as np
from cases import case, equal, repeats

import multiverso as mv
from machine.formulas import OPTIONS
from machine.model import Model

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
def concurrent_updates_are_all_applied_and_counted():
    # All updates have the same gradient, so their order does not matter. Each must be applied, with
    # the step number of its row.
    turns = 20
    for name in ("momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "ftrl"):
        options = OPTIONS[name]
        for shape in ((33_001,), (700, 24), (2, 20_000)):
            kind = mv.ArrayTableHandler if len(shape) == 1 else mv.MatrixTableHandler
            table = kind(*shape, np.ones(shape), dtype="float64", updater=name, **options)
            model = Model(name, np.ones((1, 1)), **options)
            mv.barrier()
            for _ in range(turns):
                table.add(np.full(shape, 0.5))
            mv.barrier()
            for _ in range(turns * mv.num_workers()):
                model.add(np.full((1, 1), 0.5))
            equal(table.get(), np.full(shape, model.values[0, 0]))
            mv.barrier()
