"""Cases that hold for every adapter on every framework, for tests/mpi/test_adapter_suite.py.

The argument names a file in the folder adapters. Its `Model` is a model of that framework with the
adapter attached.
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


def gained():
    """Return the sum of all workers' deltas in the rounds of `train`."""
    return ROUNDS * mv.num_workers() * (mv.num_workers() + 1) / 2


def train(model):
    """Add to all parameters and sync, in rounds, until every worker's deltas are in."""
    for _ in range(ROUNDS):
        model.add(mv.worker_id() + 1)
        model.sync()
    model.wait()
    mv.barrier()
    model.sync()
    model.wait()


def check(shapes, dtype, **options):
    """Start from the master's values and end with the tables' values, which contain all deltas."""
    model = Model(shapes, dtype, value=mv.worker_id() + 4)
    model.attach(**options)
    equal(model.values(), 4)
    train(model)
    equal(model.values(), 4 + gained())
    mv.barrier()
    held = np.concatenate([table.get() for table in model.tables()])
    equal(np.sort(held), np.sort(model.values()))
    return model


def of_each_dtype():
    for dtype in Model.DTYPES:
        check(SHAPES, dtype)


def of_one_tensor():
    check([(5, 3)], "float32")


def of_a_thousand_tensors():
    check([(2,)] * 1000, "float32")


def exchanged_in_the_background():
    for dtype in Model.DTYPES:
        check(SHAPES, dtype, overlap=True)


def without_parameters():
    raises(ValueError, lambda: Model([], "float32", value=0).attach(), "expected parameters")
    check(SHAPES, "float32")


def without_parameters_on_one_rank():
    if mv.size() == 1:
        return
    if mv.rank() == 0:
        raises(ValueError, lambda: Model([], "float32", value=0).attach(), "expected parameters")
    else:
        raises(mv.MismatchError, lambda: Model(SHAPES, "float32", value=0).attach())
    check(SHAPES, "float32")


def another_shape_on_one_rank():
    if mv.size() > 1:
        shapes = [(2, 3), *SHAPES[1:]] if mv.rank() == 0 else SHAPES
        raises(mv.MismatchError, lambda: Model(shapes, "float32", value=0).attach())
        check(SHAPES, "float32")


def that_is_saved_and_loaded():
    model = check(SHAPES, "float32")
    with tempfile.TemporaryDirectory() as folder:
        twin = model.saved_and_loaded(Path(folder))
    equal(twin, model.values())


FUNCTIONS = (
    of_each_dtype,
    of_one_tensor,
    of_a_thousand_tensors,
    exchanged_in_the_background,
    without_parameters,
    without_parameters_on_one_rank,
    another_shape_on_one_rank,
    that_is_saved_and_loaded,
)


def in_session(function, **options):
    """Return the same case for a session with these options."""

    def run():
        function()

    run.options = options
    return run


CASES = {function.__name__: function for function in FUNCTIONS}
CASES |= {
    f"{function.__name__}, in sync mode": in_session(function, sync=True)
    for function in (of_each_dtype, exchanged_in_the_background, without_parameters_on_one_rank)
}
CASES["of_each_dtype, with bounded staleness"] = in_session(of_each_dtype, staleness=1)

if __name__ == "__main__":
    Model = importlib.import_module(f"adapters.{sys.argv[1]}").Model
    run_all(CASES)
