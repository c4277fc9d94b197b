"""Cases that hold for every adapter on every framework, for tests/mpi/test_adapter_suite.py.

The argument names a file in the folder adapters, which defines `Model`. ``Model(shapes, dtype,
value)`` makes a model of that framework whose parameters all equal `value`. `DTYPES` are the dtypes
that its adapter supports, `attach` attaches the adapter, `add` changes the parameters locally, and
`saved_and_loaded` returns the values after saving the model to a folder and loading it again.
"""

import importlib
import sys
import tempfile
from pathlib import Path

import numpy as np
from cases import equal, raises, run_all

import multiverso as mv

Model = None  # the model class of the framework under test

ROUNDS = 3
SHAPES = [(3, 2), (4,), ()]


def sum_of_deltas():
    """Return the sum of all workers' deltas to one element in `train`."""
    return ROUNDS * mv.num_workers() * (mv.num_workers() + 1) / 2


def train(model, factor):
    """Add to all parameters and sync, in rounds, until the model has the deltas of every worker."""
    for _ in range(ROUNDS):
        model.add((mv.worker_id() + 1) * factor)
        model.sync()
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
    names = {table.dtype.name for table in model.tables()}
    equal(names, {"float64" if dtype == "float64" else "float32"})
    # Averages of deltas that are as many times larger as there are workers equal the sum.
    train(model, mv.num_workers() if options.get("average") else 1)
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


def exchange_in_the_background():
    for dtype in Model.DTYPES:
        check_training(SHAPES, dtype, overlap=True)


def average_of_the_workers():
    for dtype in Model.DTYPES:
        for overlap in (False, True):
            check_training(SHAPES, dtype, average=True, overlap=overlap)


def integers_are_those_of_the_master_where_others_are_averaged():
    model = Model(SHAPES, "int32", value=mv.worker_id())
    model.attach(average=True)
    for _ in range(ROUNDS):
        model.add(mv.worker_id() + 2)
        model.sync()
    equal(model.values(), 2 * ROUNDS)


def model_without_parameters():
    raises(ValueError, lambda: Model([], "float32", value=0).attach(), "expected parameters")
    check_training(SHAPES, "float32")


def no_parameters_on_one_rank():
    if mv.size() == 1:
        return
    if mv.rank() == 0:
        raises(ValueError, lambda: Model([], "float32", value=0).attach(), "expected parameters")
    else:
        raises(mv.errors.MismatchError, lambda: Model(SHAPES, "float32", value=0).attach())
    check_training(SHAPES, "float32")


def another_shape_on_one_rank():
    if mv.size() > 1:
        shapes = [(2, 3), *SHAPES[1:]] if mv.rank() == 0 else SHAPES
        raises(mv.errors.MismatchError, lambda: Model(shapes, "float32", value=0).attach())
        check_training(SHAPES, "float32")


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
        integers_are_those_of_the_master_where_others_are_averaged,
        no_parameters_on_one_rank,
    )
}
CASES["each_dtype, with bounded staleness"] = in_session(each_dtype, staleness=1)

if __name__ == "__main__":
    Model = importlib.import_module(f"adapters.{sys.argv[1]}").Model
    run_all(CASES)
