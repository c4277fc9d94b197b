"""ParamSync on any number of ranks: one start, all deltas, errors that reach every rank."""

import numpy as np
import worker
from cases import equal, open_session, raises, registrar, run_all

import multiverso as mv
from multiverso.sync import ParamSync

ROUNDS = 30

CASES = {}

case = registrar(CASES)


def gains(rounds):
    """Return the sum of all deltas in some rounds; each worker adds its number, counted from 1."""
    return rounds * mv.num_workers() * (mv.num_workers() + 1) / 2


def of_every_kind(value):
    """Return arrays of several dtypes, shapes and layouts that all hold one value."""
    whole = np.full((6, 50), value, np.float32)
    return [
        np.full((300, 70), value, np.float32),
        np.full(3, value, np.float64),
        np.full(5, value, np.float16),
        whole[:, ::2],
        np.full((), value, np.int64),
    ]


def all_equal(arrays, number):
    for array in arrays:
        equal(array, np.full(array.shape, number))


def sums(in_step=False):
    """All workers start from the master's values and end with all deltas."""
    arrays = of_every_kind(mv.worker_id() + 10)
    sync = ParamSync(arrays)
    all_equal(arrays, 10)
    for number in range(1, ROUNDS + 1):
        for array in arrays:
            array += mv.worker_id() + 1
        sync.sync()
        if in_step:
            all_equal(arrays, 10 + gains(number))
    mv.barrier()
    all_equal([table.get(sync=True) for table in sync.tables], 10 + gains(ROUNDS))
    if not in_step:
        sync.sync()
        all_equal(arrays, 10 + gains(ROUNDS))


@case()
def workers_start_from_the_master_and_receive_all_deltas():
    sums()


@case(sync=True)
def in_sync_mode_after_every_round():
    sums(in_step=True)


@case(staleness=2)
def with_bounded_staleness():
    sums()


def wrong_on_the_first(arrays, error, *texts):
    """Rank 0 gets `error` and the others a MismatchError; then all continue."""
    if mv.size() == 1:
        return
    right = [np.zeros(2), np.zeros(3)]
    if mv.rank() == 0:
        raises(error, lambda: ParamSync(arrays), *texts)
    else:
        raises(mv.MismatchError, lambda: ParamSync(right))
    weights = np.zeros(3)
    sync = ParamSync([weights])
    weights += 1
    sync.sync()
    mv.barrier()
    sync.sync()
    equal(weights, np.full(3, mv.size()))


@case()
def no_arrays_on_one_rank():
    wrong_on_the_first([], ValueError, "expected parameters")


@case()
def other_sizes_on_one_rank_though_as_many_elements():
    wrong_on_the_first([np.zeros(3), np.zeros(2)], mv.MismatchError, "layout")


@case()
def another_dtype_on_one_rank():
    wrong_on_the_first([np.zeros(2), np.zeros(3, np.float32)], mv.MismatchError, "float")


@case()
def no_arrays_on_any_rank():
    raises(ValueError, lambda: ParamSync([]), "expected parameters")


@case()
def server_only_rank_keeps_the_table():
    if mv.size() == 1:
        return
    mv.shutdown()
    open_session(role="server" if worker.RANK == 0 else "all")
    weights = np.full(3, worker.RANK, np.float64)
    sync = ParamSync([weights])
    if worker.RANK == 0:
        raises(mv.StateError, sync.sync)
    else:
        equal(weights, [1, 1, 1])  # the value of the first worker
        sync.sync()


if __name__ == "__main__":
    run_all(CASES)
