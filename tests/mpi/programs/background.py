"""Cases of calls in the background, on any number of ranks."""

import gc
import os
import random
import signal
import threading

import numpy as np
import worker
from cases import SEED, equal, open_session, raises, registrar, run_all

import multiverso as mv
from multiverso import api

CASES = {}

case = registrar(CASES)


@case()
def background_adds_are_exact():
    rng = random.Random(f"{SEED} {mv.rank()}")
    array = mv.ArrayTableHandler(5000, dtype="int64")
    matrix = mv.MatrixTableHandler(40, 3, dtype="int64")
    total_array, total_matrix = np.zeros(5000, np.int64), np.zeros((40, 3), np.int64)
    for step in range(60):
        delta = np.full(5000, step)
        ids = np.array([rng.randrange(40) for _ in range(rng.randrange(9))], np.int64)
        rows = np.arange(3 * len(ids)).reshape(-1, 3) + step
        rng.choice((array.add, array.add_async))(delta)
        rng.choice((matrix.add, matrix.add_async))(rows, ids)
        total_array += delta
        np.add.at(total_matrix, ids, rows)
        delta[:] = rows[:] = -1  # The calls have copied their arguments.
        if rng.random() < 0.2:
            # A worker sees its own earlier adds. The adds of others are not negative.
            get = rng.choice((array.get, lambda: array.get_async().result()))
            assert (get() >= total_array).all()
            assert (matrix.get_async([1, 1, 2]).result() >= total_matrix[[1, 1, 2]]).all()
            assert (matrix.get([3]) >= total_matrix[[3]]).all()
    mv.barrier()
    equal(array.get(), mv.aggregate(total_array))
    equal(matrix.get(), mv.aggregate(total_matrix.ravel()).reshape(40, 3))


@case(sync=True)
def background_calls_are_parts_of_rounds():
    workers, me = mv.num_workers(), mv.worker_id()
    first, second = mv.ArrayTableHandler(3000), mv.MatrixTableHandler(30, 100)
    # The ranks start the calls on different tables in different orders.
    tables = (first, second) if me % 2 else (second, first)
    for step in range(1, 20):
        futures = {}
        for table in tables:
            table.add_async(np.full(table.shape, me + step))
            futures[table] = table.get_async()
        total = sum(sum(worker + i for worker in range(workers)) for i in range(1, step + 1))
        for table in (first, second):
            equal(futures[table].result(), np.full(table.shape, total))
        equal(second.get([3, 3]), np.full((2, 100), total))


@case(staleness=1)
def background_calls_respect_the_staleness():
    table = mv.MatrixTableHandler(20, 4, dtype="int64")
    for step in range(30):
        table.add_async(np.ones((20, 4), np.int64))
        seen = table.get_async([0, 19]).result()
        # The other workers are at most one add behind, and at most two ahead.
        assert seen.min() >= step + 1 + step * (mv.num_workers() - 1), (step, seen)
    mv.barrier()
    equal(table.get(), np.full((20, 4), 30 * mv.num_workers()))


@case()
def session_closes_with_calls_in_flight():
    table = mv.ArrayTableHandler(100_000)
    for _ in range(20):
        table.add_async(np.ones(100_000))
        table.get_async()


@case()
def a_barrier_waits_for_all_tables_and_dropped_futures():
    tables = [mv.ArrayTableHandler(5000) for _ in range(8)]
    for _ in range(20):
        for table in tables:
            table.add_async(np.ones(5000))
            table.get_async()
        gc.collect(0)
    mv.barrier()
    for table in tables:
        equal(table.get(), np.full(5000, 20.0 * mv.num_workers()))
    mv.barrier()


@case(sync=True)
def the_caller_can_end_a_wait_and_the_call_goes_on():
    table = mv.ArrayTableHandler(3)
    if mv.num_workers() == 1:
        return
    if mv.worker_id() > 0:
        worker.meet("waited")
    table.add_async(np.ones(3))
    future = table.get_async()
    if mv.worker_id() == 0:
        assert not future.done()
        assert not future.wait(timeout=0.01)
        raises(mv.OperationTimeout, lambda: table.flush(timeout=0), "table 'table 0', flush")
        for wait in (future.wait, table.flush):
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            raises(KeyboardInterrupt, wait)
            timer.join()
        assert not future.done()
        worker.meet("waited")
    equal(future.result(), np.full(3, float(mv.num_workers())))
    assert future.done()
    mv.barrier()


@case(sync=True)
def failed_call_ends_the_next_collective_call_on_all_ranks():
    table = mv.ArrayTableHandler(2, name="w")
    if mv.worker_id() == mv.num_workers() - 1:
        mv.finish()
    for call in (mv.barrier, lambda: mv.aggregate(np.ones(3)), lambda: mv.ArrayTableHandler(3)):
        mv.barrier()
        if mv.worker_id() == mv.num_workers() - 1:
            table.add_async([1, 2])
        raises(mv.errors.StateError, call, "table 'w', add: ")
        call()
    mv.barrier()


@case(sync=True)
def leaving_ends_the_calls_in_flight():
    table = mv.ArrayTableHandler(3)
    mv.barrier()
    if mv.worker_id() == 0 and mv.num_workers() > 1:
        table.add_async(np.ones(3))
        futures = [table.get_async(), table.get_async()]
        api.current_session().leave_with("enough")
        for future in futures:
            raises(mv.errors.AbortedError, future.wait, "enough")
    worker.meet("left")
    if mv.is_initialized():
        api.current_session().leave_with("the case is over")
    worker.meet("all have left")
    open_session(sync=True)


@case(sync=True)
def finish_follows_the_calls_in_flight():
    table = mv.ArrayTableHandler(3)
    for _ in range(5):
        table.add_async(np.ones(3))
    mv.finish()
    mv.barrier()
    equal(table.get(), np.full(3, 5.0 * mv.num_workers()))


if __name__ == "__main__":
    run_all(CASES)
