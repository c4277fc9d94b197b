"""Cases about parts of tables, single elements, and tables that are read without a call."""

import random

import numpy as np
from cases import SEED, case, equal, repeats
from modes import case as mode_case, for_seeds

import multiverso as mv
from multiverso import api

#: Rows and columns: of few elements, with runs of a stripe, longer than a message between nodes,
#: and an array.
SHAPES = ((1, 1), (7, 5), (1000, 40), (3, 100_000), (40_000,))


def _table(shape, value, **options):
    kind = mv.ArrayTableHandler if len(shape) == 1 else mv.MatrixTableHandler
    return kind(*shape, value, **options)


def _random_index(rng, shape):
    """Return a random index of NumPy's basic indexing."""
    items = []
    for length in shape:
        if rng.random() < 0.2:
            items.append(rng.randrange(-length, length))
        else:
            bounds = [rng.choice((None, rng.randrange(-length - 2, length + 3))) for _ in range(2)]
            items.append(slice(*bounds))
    items = items[: rng.randrange(1, len(items) + 1)]
    if rng.random() < 0.2:
        items.append(Ellipsis)
    return items[0] if len(items) == 1 else tuple(items)


def _delta_of(seed, shape, dtype):
    """Return an index and a delta, the same on every rank."""
    index = _random_index(random.Random(seed), shape)
    part = np.empty(shape, np.int8)[index]
    return index, np.random.default_rng(seed).integers(-9, 10, part.shape, np.int8).astype(dtype)


@case
def random_parts_agree_with_a_model():
    for number, shape in enumerate(SHAPES):
        dtype = ("float32", "float64", "int32", "int64")[number % 4]
        initial = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        lazy = mv.initializers.Constant(3)
        for value in (initial, lazy):
            table = _table(shape, value, dtype=dtype)
            model = initial.copy() if value is initial else np.full(shape, 3, dtype)
            for phase in range(3):
                for rank in range(mv.size()):
                    for step in range(8):
                        seed = SEED + 1000 * phase + 100 * rank + step
                        index, delta = _delta_of(seed, shape, dtype)
                        model[index] += delta
                        if rank == mv.rank():
                            table.add(delta, index=index)
                mv.barrier()
                equal(table.get(), model)
                for step in range(8):
                    index, _ = _delta_of(SEED + 7 * phase + step, shape, dtype)
                    equal(table.get(index=index), model[index])
                    out = np.zeros(model[index].shape[::-1], dtype).T
                    assert table.get(index=index, out=out, sync=step % 2 == 0) is out
                    equal(out, model[index])
                mv.barrier()


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


@case
def live_view_shows_the_adds_of_all_ranks():
    if api.current_session().num_nodes > 1:
        return
    table = mv.ArrayTableHandler(100_000, 1)
    view = table.view(live=True)
    mv.barrier()
    table.add(np.ones(100_000))
    mv.barrier()
    expected = np.full(100_000, 1 + mv.size())
    equal(view, expected)
    mv.barrier()
    mv.shutdown()
    equal(view, expected)
    mv.init()


@mode_case(sync=True)
def rounds_of_parts_contain_the_adds_of_every_worker():
    for_seeds(_rounds_of_parts)


def _rounds_of_parts(seed):
    for shape in ((9, 6), (40_000,)):
        table = _table(shape, 1, dtype="int64")
        model = np.ones(shape, np.int64)
        for step in range(6):
            for worker in range(mv.num_workers()):
                index, delta = _delta_of(seed + 100 * step + worker, shape, "int64")
                model[index] += delta
                if worker == mv.worker_id():
                    table.add(delta, index=index)
            index, _ = _delta_of(seed + 100 * step, shape, "int64")
            equal(table.get(index=index), model[index])
        equal(table.get(), model)
    rows = mv.MatrixTableHandler(4, 3, updater="adam")
    rows.add(np.ones((2, 3)), index=np.s_[1:3])


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
