"""Cases about shared variables of Theano: initial values, no lost delta, errors on every rank."""

import re
import sys
from pathlib import Path

import numpy as np
import worker
from cases import equal, open_session, raises, registrar, run_all

import multiverso as mv

# Only ranks import these modules, so pytest can read the names of the cases without Theano.
theano = MVSharedVariable = mv_shared = sync_all_mv_shared_vars = None

CASES = {}

case = registrar(CASES)


@case()
def workers_start_from_the_master_and_receive_all_deltas():
    me, workers = mv.worker_id(), mv.num_workers()
    matrix = mv_shared(np.full((3, 5), 10 + me, np.float32), name="matrix", borrow=True)
    scalar = mv_shared(float(me))
    count = MVSharedVariable(theano.shared(np.int64(me)))
    half_precision = mv_shared(np.full(7, me, np.float16))
    variables = [matrix, scalar, count, half_precision]
    for variable, start in zip(variables, (np.full((3, 5), 10), 0, 0, np.zeros(7)), strict=True):
        equal(variable.get_value(), start)

    train = theano.function([], updates=[(matrix, matrix + np.float32(me + 1)), (count, count + 2)])
    rounds = 50
    for _ in range(rounds):
        train()
        scalar.set_value(scalar.get_value() + 0.5)
        half_precision.set_value(half_precision.get_value() + np.float16(1))
        sync_all_mv_shared_vars()
    mv.barrier()
    matrix.mv_sync()
    sync_all_mv_shared_vars()
    ends = (
        np.full((3, 5), 10 + rounds * workers * (workers + 1) / 2),
        rounds * workers * 0.5,
        rounds * workers * 2,
        np.full(7, rounds * workers),
    )
    for variable, end in zip(variables, ends, strict=True):
        equal(variable.get_value(), end)


@case(sync=True)
def sync_mode_with_a_thousand_variables_and_with_one():
    me, workers = mv.worker_id(), mv.num_workers()
    variables = [mv_shared(np.full((2, 3), 10 + me, np.float64)) for _ in range(1000)]
    rounds = 3
    for _ in range(rounds):
        for variable in variables:
            variable.set_value(variable.get_value() + me + 1)
        sync_all_mv_shared_vars()
    variables[0].mv_sync()
    for variable in variables:
        equal(variable.get_value(), np.full((2, 3), 10 + rounds * workers * (workers + 1) / 2))


@case(sync=True)
def average_of_the_workers():
    me, workers = mv.worker_id(), mv.num_workers()
    variables = [mv_shared(np.zeros(4, dtype), average=True) for dtype in ("f2", "f4", "f8")]
    variables.append(MVSharedVariable(theano.shared(np.zeros(4)), average=True))
    assert MVSharedVariable(variables[0]) is variables[0]  # keeps its table
    integers = mv_shared(np.zeros(4, np.int32), average=True)
    for rounds in (1, 2):
        for variable in variables:
            value = variable.get_value()
            variable.set_value(value + value.dtype.type(2 * (me + 1)))
        integers.set_value(integers.get_value() + np.int32(me + 5))
        sync_all_mv_shared_vars()
        equal(integers.get_value(), np.full(4, rounds * 5))  # the master's
        for variable in variables:
            equal(variable.get_value(), np.full(4, rounds * (workers + 1)))


def check_errors_of_wrong_variable(make_wrong, make_right, error, pattern):
    """Check that rank 0 gets `error` and the others a MismatchError, and that all can continue."""
    if mv.size() == 1:
        return
    if mv.rank() == 0:
        message = str(raises(error, make_wrong))
        assert re.search(pattern, message), message
    else:
        raises(mv.errors.MismatchError, make_right)
    variable = mv_shared(np.zeros(3))
    variable.set_value(np.ones(3))
    variable.mv_sync()
    mv.barrier()
    variable.mv_sync()
    equal(variable.get_value(), np.full(3, mv.size()))


@case()
def another_shape_on_one_rank():
    def of_shape(*shape):
        return lambda: mv_shared(np.zeros(shape), name="W")

    pattern = r"W, shape \(2, 3\).*W, shape \(3, 2\)|W, shape \(3, 2\).*W, shape \(2, 3\)"
    check_errors_of_wrong_variable(of_shape(2, 3), of_shape(3, 2), mv.errors.MismatchError, pattern)


@case()
def another_type_on_one_rank():
    makers = (lambda: mv_shared(np.zeros(4, complex)), lambda: mv_shared(np.zeros(4)))
    check_errors_of_wrong_variable(*makers, TypeError, "received complex128")


@case()
def an_error_of_the_framework_on_one_rank():
    makers = (lambda: mv_shared(0.0, wrong=1), lambda: mv_shared(0.0))
    check_errors_of_wrong_variable(*makers, TypeError, "wrong|constructor")


@case()
def server_only_rank_keeps_tables():
    if mv.size() == 1:
        return
    mv.shutdown()
    open_session(role="server" if worker.RANK == 0 else "all")
    variable = mv_shared(np.full(3, worker.RANK, np.float64))
    if worker.RANK == 0:
        raises(mv.errors.StateError, variable.mv_sync)
    else:
        equal(variable.get_value(), [1, 1, 1])  # the value of the first worker
        variable.mv_sync()


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[3] / "examples" / "common"))
    from theano_backend import theano

    from multiverso.theano_ext.sharedvar import (
        MVSharedVariable,
        mv_shared,
        sync_all_mv_shared_vars,
    )

    run_all(CASES)
