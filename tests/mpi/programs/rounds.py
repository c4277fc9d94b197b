"""Cases about sync rounds: the values that a get returns, who takes part, and finished workers."""

import random

import numpy as np
import worker
from cases import SEED, TIMEOUT, equal, raises, repeats
from modes import case, dawdle

import multiverso as mv
from multiverso.api import current_session
from multiverso.sync import ParamSync


@case(sync=True)
def peeks_show_complete_rounds_and_take_part_in_none():
    workers = mv.num_workers()
    steps = repeats(100)
    rng, delay_rng = random.Random(f"{SEED} {mv.rank()}"), random.Random(mv.rank())
    array = mv.ArrayTableHandler(20_001, 5, dtype="int64")
    matrix = mv.MatrixTableHandler(301, 3, dtype="int64")
    # In round r, every worker adds to the keys 0 and r + 1, of which the second is new.
    has_keys = current_session().num_nodes == 1
    keyed = mv.HashTableHandler(2, capacity=10 * steps, dtype="int64") if has_keys else None
    keys = np.arange(steps + 2)
    rows = np.array([300, 0, 300, 7])
    least = 0

    def peek(least, most):
        """Check each table, and return the fewest rounds that any of them shows."""
        shown = []
        values = array.peek()
        shown.append((values[0] - 5) // workers)
        assert (values == 5 + shown[-1] * workers).all(), "a peek mixes rounds"
        out = np.empty((4, 3), np.int64)
        assert matrix.peek(rows, out) is out
        shown.append(out[0, 0] // workers)
        assert (out == shown[-1] * workers).all(), "a peek of rows mixes rounds"
        if has_keys:
            values = keyed.peek(keys)
            shown.append(values[0, 0] // workers)
            last = shown[-1]
            assert (values[1 : last + 1] == workers).all(), "a peek of keys lacks a key"
            assert not values[last + 1 :].any(), "a peek of keys shows a part of a later round"
        for number in shown:
            assert least <= number <= most, f"{number} rounds, expected {least} to {most}"
        return min(shown)

    for step in range(steps):
        array.add(np.ones(20_001, np.int64))
        matrix.add(np.ones((301, 3), np.int64))
        if has_keys:
            keyed.add(np.ones((2, 2), np.int64), [0, step + 1])
        dawdle(delay_rng)
        for _ in range(rng.choice((0, 0, 1, 2))):
            least = max(least, peek(least, step + 1))
        if rng.random() < 0.3:  # All workers draw differently, so their gets would not agree.
            values = matrix.peek()
            assert (values == values[0, 0]).all(), "a peek of a matrix mixes rounds"
    mv.barrier()
    peek(steps, steps)
    assert not has_keys or len(keyed) == steps + 1, "a peek gave a row to a key"
    mv.barrier()


@case()
def peeks_need_no_other_worker_in_any_mode():
    mv.shutdown()
    for number, options in enumerate(({}, {"staleness": 1}, {"sync": True})):
        with mv.session(timeout=TIMEOUT, **options) as session:
            array = mv.ArrayTableHandler(3000, 1)
            matrix = mv.MatrixTableHandler(300, 2)
            has_keys = session.num_nodes == 1 or "sync" not in options
            keyed = mv.HashTableHandler(1, capacity=100) if has_keys else None
            has_rounds = bool(options)
            if session.rank == 0:
                if has_rounds and mv.num_workers() > 1:
                    array.add(np.ones(3000))  # No other worker has made this add.
                for _ in range(3):
                    seen = array.peek(np.empty(3000, np.float32))
                    assert set(seen.tolist()) <= {1.0, 2.0}
                    equal(matrix.peek([299, 0]), np.zeros((2, 2)))
                    if has_keys:
                        equal(keyed.peek([5]), [[0]])
                worker.announce(f"peeked-{number}")
            else:
                worker.wait_for(f"peeked-{number}", 0)
                if has_rounds:
                    array.add(np.ones(3000))
            mv.barrier()
            assert not has_keys or len(keyed) == 0
            mv.barrier()
    mv.init(timeout=TIMEOUT)


@case(sync=True)
def invalid_arguments_do_not_join_a_round():
    matrix = mv.MatrixTableHandler(4, 2)
    if mv.is_master_worker():
        raises(ValueError, lambda: matrix.add(np.ones((3, 2))))
        raises(IndexError, lambda: matrix.add(np.ones((1, 2)), [4]))
        raises(TypeError, lambda: matrix.get([0.5]))
        raises(ValueError, lambda: matrix.add_get(np.ones((4, 2)), out=np.ones(3, np.float32)))
    matrix.add(np.ones((4, 2)))
    equal(matrix.get(), np.full((4, 2), mv.num_workers()))


@case(sync=True)
def tables_can_be_freed_at_different_times():
    for step in range(20):
        table = mv.ArrayTableHandler(5000, step)
        table.add(np.ones(5000))
        equal(table.get(), np.full(5000, step + mv.num_workers()))
        if mv.rank() % 2:
            del table
    mv.barrier()


@case(sync=True)
def finished_worker_sees_only_complete_rounds():
    table = mv.ArrayTableHandler(50_000)
    rounds = 200
    if mv.rank() == mv.size() - 1 and mv.size() > 1:
        mv.finish()
        last = 0.0
        while last < rounds * (mv.size() - 1):
            got = table.get()
            assert (got == got[0]).all(), "part of a round"
            assert got[0] >= last
            last = got[0]
    else:
        for step in range(1, rounds + 1):
            assert table.add_get(np.ones(50_000))[-1] == step * max(1, mv.size() - 1)
    mv.barrier()


@case(sync=True)
def elastic_averaging_in_rounds():
    workers, me = mv.num_workers(), mv.worker_id()
    array = np.zeros(30_000)
    sync = ParamSync([array], updater="easgd", elastic_force=0.125)
    local_values, center = np.zeros(workers), 0.0
    for _ in range(5):
        local_values += np.arange(1, workers + 1)
        array += me + 1
        center += 0.125 * (local_values.sum() - workers * center)
        local_values += 0.125 * (center - local_values)
        sync.sync()
        equal(sync.tables[0].get(), np.full(30_000, center))
        equal(array, np.full(30_000, local_values[me]))
