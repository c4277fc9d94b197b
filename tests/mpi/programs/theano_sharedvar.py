"""What each rank sees of shared variables that all workers train."""

import sys
from pathlib import Path

import numpy as np
import worker

worker.begin()
sys.path.append(str(Path(__file__).parents[3] / "examples" / "common"))
from theano_backend import theano  # noqa: E402

import multiverso as mv  # noqa: E402
from multiverso.theano_ext.sharedvar import (  # noqa: E402
    MVSharedVariable,
    mv_shared,
    sync_all_mv_shared_vars,
)


def values_agree():
    """Start from the master's value; end with everybody's gains on every worker."""
    me, workers = mv.worker_id(), mv.num_workers()
    matrix = mv_shared(np.full((3, 5), 10 + me, np.float32), name="matrix", borrow=True)
    number = mv_shared(float(me))
    count = MVSharedVariable(theano.shared(np.int64(me)))
    half = mv_shared(np.full(7, me, np.float16))
    variables = [matrix, number, count, half]
    starts = [variable.get_value().tolist() for variable in variables]

    gain = theano.function([], updates=[(matrix, matrix + np.float32(me + 1)), (count, count + 2)])
    rounds = 50
    for _ in range(rounds):
        gain()
        number.set_value(number.get_value() + 0.5)
        half.set_value(half.get_value() + np.float16(1))
        sync_all_mv_shared_vars()
    mv.barrier()
    matrix.mv_sync()
    sync_all_mv_shared_vars()

    ones = np.ones((3, 5))
    expected = [
        10 * ones + rounds * workers * (workers + 1) / 2,
        rounds * workers * 0.5,
        rounds * workers * 2,
        np.full(7, rounds * workers),
    ]
    equal = [
        bool(np.array_equal(variable.get_value(), wanted))
        for variable, wanted in zip(variables, expected, strict=True)
    ]
    worker.report(starts=starts, equal=equal)


def in_step():
    """Make rounds of sync mode with one variable, and with a thousand."""
    me, workers = mv.worker_id(), mv.num_workers()
    variables = [mv_shared(np.full((2, 3), 10 + me, np.float64)) for _ in range(1000)]
    rounds = 3
    for _ in range(rounds):
        for variable in variables:
            variable.set_value(variable.get_value() + me + 1)
        sync_all_mv_shared_vars()
    variables[0].mv_sync()
    end = 10 + rounds * workers * (workers + 1) / 2
    worker.report(equal=all(bool((v.get_value() == end).all()) for v in variables))


def one_is_wrong(make):
    """Rank 0 makes something else than the others; report what they get, and that all go on."""
    worker.report_call(make)
    variable = mv_shared(np.zeros(3))
    variable.set_value(np.ones(3))
    variable.mv_sync()
    mv.barrier()
    variable.mv_sync()
    worker.report(after=variable.get_value().tolist())


def roles():
    """Rank 0 only keeps tables: it makes the variables too, but does not synchronise them."""
    variable = mv_shared(np.full(3, mv.rank(), np.float64))
    worker.report(start=variable.get_value().tolist())
    worker.report_call(variable.mv_sync)
    mv.barrier()


scenario = sys.argv[1]
role = "server" if scenario == "roles" and worker.RANK == 0 else "all"
with mv.session(role=role, sync=scenario == "in step"):
    if scenario == "values":
        values_agree()
    elif scenario == "in step":
        in_step()
    elif scenario == "shape":
        one_is_wrong(lambda: mv_shared(np.zeros((2, 3) if mv.rank() == 0 else (3, 2)), name="W"))
    elif scenario == "size":
        one_is_wrong(lambda: mv_shared(np.zeros(4 if mv.rank() == 0 else 5)))
    elif scenario == "type":
        one_is_wrong(lambda: mv_shared(np.zeros(4, complex if mv.rank() == 0 else float)))
    elif scenario == "framework":
        one_is_wrong(lambda: mv_shared(0.0, **({"wrong": 1} if mv.rank() == 0 else {})))
    elif scenario == "roles":
        roles()
