"""ParamSync on any number of ranks: equal initial values, no lost delta, errors on every rank."""

import numpy as np
import worker
from cases import equal, open_session, raises, registrar, run_all

import multiverso as mv
from multiverso.sync import ParamSync

ROUNDS = 30

CASES = {}

case = registrar(CASES)


def sum_of_deltas(rounds):
    """Return the sum of all deltas to an element when worker w adds w + 1 in each round."""
    return rounds * mv.num_workers() * (mv.num_workers() + 1) / 2


def arrays_of_every_kind(value):
    """Return arrays of several dtypes, shapes and layouts that all hold one value."""
    whole = np.full((6, 50), value, np.float32)
    return [
        np.full((300, 70), value, np.float32),
        np.full(3, value, np.float64),
        np.full(5, value, np.float16),
        whole[:, ::2],
        np.full((), value, np.int64),
    ]


def check_all_equal(arrays, value):
    for array in arrays:
        equal(array, np.full(array.shape, value))


def check_training(lock_step=False):
    """Check that all workers start with the master's values and end with all deltas."""
    arrays = arrays_of_every_kind(mv.worker_id() + 10)
    sync = ParamSync(arrays)
    check_all_equal(arrays, 10)
    for step in range(1, ROUNDS + 1):
        for array in arrays:
            array += mv.worker_id() + 1
        sync.sync()
        if lock_step:
            check_all_equal(arrays, 10 + sum_of_deltas(step))
    mv.barrier()
    check_all_equal([table.get(sync=True) for table in sync.tables], 10 + sum_of_deltas(ROUNDS))
    if not lock_step:
        sync.sync()
        check_all_equal(arrays, 10 + sum_of_deltas(ROUNDS))


@case()
def workers_start_from_the_master_and_receive_all_deltas():
    check_training()


@case(sync=True)
def sync_mode_has_all_deltas_after_every_round():
    check_training(lock_step=True)


@case(staleness=2)
def bounded_staleness_loses_no_delta():
    check_training()


def check_errors_of_wrong_arrays(arrays, error, *texts):
    """Check that rank 0 gets `error` and the others a MismatchError, and that all can continue."""
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
    check_errors_of_wrong_arrays([], ValueError, "expected parameters")


@case()
def other_sizes_on_one_rank_though_as_many_elements():
    check_errors_of_wrong_arrays([np.zeros(3), np.zeros(2)], mv.MismatchError, "layout")


@case()
def another_dtype_on_one_rank():
    check_errors_of_wrong_arrays([np.zeros(2), np.zeros(3, np.float32)], mv.MismatchError, "float")


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
