"""Cases about parts of tables, single elements, and tables that are read without a call."""

import numpy as np
from cases import case, equal, repeats
from modes import case as mode_case

import multiverso as mv

#: Rows and columns: of few elements, with runs of a stripe, longer than a message between nodes,
#: and an array.
SHAPES = ((1, 1), (7, 5), (1000, 40), (3, 100_000), (40_000,))


@case
def every_value_of_a_counter_is_returned_once():
    size = 3 * mv.size()
    counters = mv.ArrayTableHandler(size, dtype="int64")
    count = repeats(500)
    mv.barrier()
    seen = [(i, int(counters.fetch_add(i))) for _ in range(count) for i in (0, size - 1)]
    everything = mv.ArrayTableHandler(2 * count * mv.size(), dtype="int32")
    for i, value in seen:
        everything.fetch_add((count * mv.size() if i else 0) + value)
    mv.barrier()
    equal(everything.get(), np.ones(everything.size))
    equal(counters.get(index=0), count * mv.size())


@case
def compare_swap_is_atomic_for_all_dtypes():
    for dtype in ("float32", "float64", "int32", "int64"):
        table = mv.MatrixTableHandler(mv.size() + 1, 3, dtype=dtype)
        mv.barrier()
        for i in range(mv.size() + 1):
            added = 0
            while added < 20:
                before = table.get(index=(i, 1))[()]
                added += table.compare_swap((i, -2), before, before + 1) == before
        mv.barrier()
        equal(table.get(), [[0, 20 * mv.size(), 0]] * (mv.size() + 1))
        mv.barrier()
        equal(table.compare_swap((0, 0), 1, 5), 0)  # differs from the expected value
        equal(table.get(index=(0, 0)), 0)


@mode_case(staleness=1)
def parts_are_adds_of_a_round_and_single_elements_are_not():
    table = mv.MatrixTableHandler(3, 4, dtype="int64")
    for step in range(20):
        table.add([1, 1], index=np.s_[1, 1:3])
        values = table.get(index=np.s_[1, 1:3])
        least = (step + 1) + (mv.num_workers() - 1) * step
        assert least <= values[0] <= least + 2 * mv.num_workers(), (values, step)
    if mv.worker_id() == 0:
        for _ in range(10):  # would wait for the others if these were adds of rounds
            table.fetch_add((2, 3))
    mv.barrier()
    equal(table.get(index=2), [0, 0, 0, 10])
