"""Cases that hold for every adapter on every framework, for tests/mpi/test_adapter_suite.py.

The argument names a file in the folder adapters, which defines `Model`. ``Model(shapes, dtype,
value)`` makes a model of that framework whose parameters all equal `value`. `DTYPES` are the dtypes
that its adapter supports, `attach` attaches the adapter, `add` changes the parameters locally, and
`saved_and_loaded` returns the values after saving the model to a folder and loading it again.
``descend(inputs, steps, rate, average)`` returns two weights that begin with ones, after steps of a
training with the adapter in which their gradients are `inputs`. ``train_rows(table, batches)``
steps with a gradient of ones for each id of each batch, where the adapter has a layer for rows.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import worker
from cases import equal, open_session, raises, run_all

import multiverso as mv
from multiverso._native import library
from multiverso.api import current_session

Model = descend = train_rows = None  # those of the framework under test

ROUNDS = 3
#: The first tensor is large enough for parts on several nodes.
SHAPES = [(300, 70), (4,), ()]


def sum_of_deltas(rounds=ROUNDS):
    """Return the sum of all workers' deltas to one element in `train`."""
    return rounds * mv.num_workers() * (mv.num_workers() + 1) / 2


def train(model, factor, in_lock_step):
    """Add to all parameters and sync, in rounds, until the model has the deltas of every worker."""
    for step in range(1, ROUNDS + 1):
        model.add((mv.worker_id() + 1) * factor)
        model.sync()
        if in_lock_step:
            equal(model.values(), 4 + sum_of_deltas(step))
    model.wait()
    mv.barrier()
    model.sync()
    model.wait()


def check_training(shapes, dtype, **options):
    """Check that a model starts with the master's values and ends with all deltas; return it."""
    model = Model(shapes, dtype, value=mv.worker_id() + 4)
    model.attach(**options)
    equal(model.values(), 4)
    # Half precision is summed in float32.
    names = sorted({table.dtype.name for table in model.tables()})
    equal(names, {"float64": ["float64"], "mixed": ["float32", "float64"]}.get(dtype, ["float32"]))
    # Averages of deltas that are as many times larger as there are workers equal the sum.
    in_lock_step = "sync" in current_session().features() and not options.get("overlap")
    train(model, mv.num_workers() if options.get("average") else 1, in_lock_step)
    equal(model.values(), 4 + sum_of_deltas())
    mv.barrier()
    table_values = np.concatenate([table.get() for table in model.tables()])
    equal(np.sort(table_values), np.sort(model.values()))
    return model


def each_dtype():
    for dtype in Model.DTYPES:
        check_training(SHAPES, dtype)


def one_tensor():
    check_training([(5, 3)], "float32")


def a_thousand_tensors():
    check_training([(2,)] * 1000, "float32")


def each_overlap():
    """Return the choices of an exchange in the background."""
    return [{}, {"overlap": True}] if "overlap" in Model.OPTIONS else [{}]


def exchange_in_the_background():
    for dtype in Model.DTYPES:
        for overlap in each_overlap()[1:]:
            check_training(SHAPES, dtype, **overlap)


def average_of_the_workers():
    for dtype in Model.DTYPES:
        for overlap in each_overlap():
            check_training(SHAPES, dtype, average=True, **overlap)


def integers_are_those_of_the_master_where_others_are_averaged():
    for overlap in each_overlap():
        model = Model(SHAPES, "int32", value=mv.worker_id())
        model.attach(average=True, **overlap)
        for _ in range(ROUNDS):
            model.add(mv.worker_id() + 2)
            model.sync()
        for _ in range(len(overlap)):  # An exchange in the background has the last result later.
            model.wait()
            model.sync()
        model.wait()
        equal(model.values(), 2 * ROUNDS)


def model_without_parameters():
    if not Model.IS_ONE:
        return
    raises(ValueError, lambda: Model([], "float32", value=0).attach(), "expected parameters")
    check_training(SHAPES, "float32")


def no_parameters_on_one_rank():
    if mv.size() == 1 or not Model.IS_ONE:
        return
    if mv.rank() == 0:
        raises(ValueError, lambda: Model([], "float32", value=0).attach(), "expected parameters")
    else:
        raises(mv.errors.MismatchError, lambda: Model(SHAPES, "float32", value=0).attach())
    check_training(SHAPES, "float32")


def another_shape_on_one_rank():
    if mv.size() > 1:
        shapes = [(70, 300), *SHAPES[1:]] if mv.rank() == 0 else SHAPES
        raises(mv.errors.MismatchError, lambda: Model(shapes, "float32", value=0).attach())
        check_training(SHAPES, "float32")


def another_dtype_on_one_rank():
    if mv.size() > 1:
        dtype = "float64" if mv.rank() == 0 else "float32"
        raises(mv.errors.MismatchError, lambda: Model(SHAPES, dtype, value=0).attach(), "float64")
        check_training(SHAPES, "float32")


def another_average_on_one_rank():
    if mv.size() > 1:
        model = Model(SHAPES, "float32", value=0)
        texts = ("updater add", "updater sgd (learning_rate")
        raises(mv.errors.MismatchError, lambda: model.attach(average=mv.rank() == 0), *texts)
        check_training(SHAPES, "float32", average=True)


def wrong_arguments_on_one_rank():
    for wrong in Model.WRONG:
        error, given = (TypeError, wrong) if mv.rank() == 0 else (mv.errors.MismatchError, {})
        raises(error, lambda given=given: Model(SHAPES, "float32", value=0).attach(**given))
    check_training(SHAPES, "float32")


def server_only_rank_keeps_the_tables():
    if mv.size() == 1:
        return
    mv.shutdown()
    open_session(role="server" if worker.RANK == 0 else "all")
    model = Model(SHAPES, "float32", value=worker.RANK)
    model.attach(average=False)
    if worker.RANK == 0:
        raises(mv.errors.StateError, model.sync)
    else:
        equal(model.values(), 1)  # the value of the first worker
        model.sync()


def gradients_of_all_workers_are_steps():
    workers = mv.num_workers()
    for average in (False, True):
        weights = descend(1.0 + mv.worker_id(), 4, 0.5, average)
        equal(weights, [1 - 4 * 0.5 * (workers + 1) / 2 * (1 if average else workers)] * 2)


def rows_get_the_gradients_of_all_workers():
    if train_rows is None:
        return
    me, workers = mv.worker_id(), mv.num_workers()
    table = mv.MatrixTableHandler(20, 3, updater="sgd", learning_rate=1)
    train_rows(table, [[10 + me, step, step] for step in range(4)])
    mv.barrier()
    times = np.repeat([2 * workers, 0, 4, 0], [4, 6, workers, 10 - workers])
    equal(table.get(), -np.tile(times, (3, 1)).T)


def deltas_below_half_precision_add_up():
    for dtype in sorted({"float16", "bfloat16"} & set(Model.DTYPES)):
        model = Model([(3,)], dtype, value=2048)  # Adjacent values are 2 or 16 apart.
        model.attach(average=False)
        mv.barrier()
        for _ in range(16):
            model.tables()[0].add([0.125] * 3)
            model.sync()
        model.wait()
        mv.barrier()
        model.sync()
        equal(model.tables()[0].get(), 2048 + 2 * mv.num_workers())
        if dtype == "float16":
            equal(model.values(), 2048 + 2 * mv.num_workers())


def statistics_follow_their_option():
    me, workers = mv.worker_id(), mv.num_workers()
    # "average" adds the mean of the deltas 6, 12, ... to the master's 100. Counts are not averaged;
    # they are the master's.
    outcomes = {
        "average": [100 + 3 * (workers + 1), 1],
        "master": [106, 1],
        False: [100 + me + 6 * (me + 1), me + 1],
    }
    for choice, expected in outcomes.items() if Model.Statistics else ():
        for average in (False, True):
            statistics = Model.Statistics(100.0 + me)
            statistics.attach(choice, average)
            statistics.add(6.0 * (me + 1), me + 1)
            statistics.sync()
            equal(statistics.values(), expected)


def interrupted_sync_is_resumed():
    for dtype in Model.DTYPES if Model.RESUMES else ():
        model = Model(SHAPES, dtype, value=0)
        model.attach()
        model.add(1)
        run = mock.patch.object(library.checked, "MV_ParamSyncRun", side_effect=KeyboardInterrupt)
        with run:
            raises(KeyboardInterrupt, model.sync)
        mv.barrier()
        for _ in range(2):
            model.sync()
            mv.barrier()
        equal(model.values(), mv.num_workers())


def calls_without_a_session():
    model, other = (Model(SHAPES, "float32", value=0) for _ in range(2))
    model.attach()
    mv.shutdown()
    for call in (model.sync, other.attach):
        raises(mv.errors.StateError, call)
    open_session()


def model_is_saved_and_loaded():
    model = check_training(SHAPES, "float32")
    with tempfile.TemporaryDirectory() as folder:
        loaded_values = model.saved_and_loaded(Path(folder))
    equal(loaded_values, model.values())


FUNCTIONS = (
    each_dtype,
    one_tensor,
    a_thousand_tensors,
    exchange_in_the_background,
    average_of_the_workers,
    model_without_parameters,
    no_parameters_on_one_rank,
    another_shape_on_one_rank,
    another_dtype_on_one_rank,
    another_average_on_one_rank,
    wrong_arguments_on_one_rank,
    server_only_rank_keeps_the_tables,
    interrupted_sync_is_resumed,
    deltas_below_half_precision_add_up,
    rows_get_the_gradients_of_all_workers,
    calls_without_a_session,
    model_is_saved_and_loaded,
)


def in_session(function, **options):
    """Return the case as another one, in a session with these options."""

    def run():
        function()

    run.options = options
    return run


CASES = {function.__name__: function for function in FUNCTIONS}
CASES |= {
    f"{case.__name__}, in sync mode": in_session(case, sync=True)
    for case in (
        each_dtype,
        exchange_in_the_background,
        average_of_the_workers,
        average_of_the_workers,
        integers_are_those_of_the_master_where_others_are_averaged,
        no_parameters_on_one_rank,
        gradients_of_all_workers_are_steps,
        rows_get_the_gradients_of_all_workers,
        statistics_follow_their_option,
    )
}
CASES |= {
    f"{case.__name__}, with bounded staleness": in_session(case, staleness=2)
    for case in (each_dtype, average_of_the_workers, rows_get_the_gradients_of_all_workers)
}

if __name__ == "__main__":
    adapter = importlib.import_module(f"adapters.{sys.argv[1]}")
    Model, descend = adapter.Model, adapter.descend
    train_rows = getattr(adapter, "train_rows", None)
    run_all(CASES)
