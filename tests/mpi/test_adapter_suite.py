"""What holds for every adapter, on those frameworks that this environment has."""

import functools
import importlib.util

import adapter_suite
import pytest

import launch

#: An adapter's file in programs/adapters, the backend of Keras, and the modules that it needs.
ADAPTERS = [
    ("numpy", "", ["numpy"]),
    ("torch", "", ["torch"]),
    ("jax", "", ["jax"]),
    ("keras", "jax", ["keras", "jax"]),
    ("keras", "tensorflow", ["keras", "tensorflow"]),
    ("keras", "torch", ["keras", "torch"]),
    ("lasagne", "", ["lasagne"]),
]
# One of the three is enough, and is what the adapter takes.
THEANOS = [name for name in ("pytensor", "aesara", "theano") if importlib.util.find_spec(name)]
ADAPTERS += [("theano", "", [name]) for name in THEANOS[:1]]

#: Seconds; frameworks take long to start and to compile.
LIMIT = 2 * launch.WALL_LIMIT

#: Three ranks with a thread for each core would be in each other's way.
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}

HERE = [
    (adapter, backend)
    for adapter, backend, modules in ADAPTERS
    if all(importlib.util.find_spec(module) for module in modules)
]

#: On two ranks and on several nodes too: those that work in place, and those that take what is
#: copied. The others are one or the other, and their frameworks start slowly.
SPREAD = ("numpy", "torch", "jax")

#: Adapter, backend, ranks, and ranks that share a node's memory at most.
JOBS = [(*here, np, np) for here in HERE for np in (1, 3)]
JOBS += [(*here, np, 2) for here in HERE if here[0] in SPREAD for np in (2, 3)]


@functools.cache
def job(adapter, backend, np, per_node):
    settings = {**SETTINGS, "KERAS_BACKEND": backend}
    if per_node < np:
        settings["MULTIVERSO_RANKS_PER_NODE"] = str(per_node)
    return launch.run("adapter_suite.py", adapter, np=np, limit=LIMIT, **settings)


@pytest.mark.parametrize("name", adapter_suite.CASES)
@pytest.mark.parametrize(("adapter", "backend", "np", "per_node"), JOBS)
def test_case(adapter, backend, np, per_node, name):
    job(adapter, backend, np, per_node).check_case(name, np)


@pytest.mark.parametrize(("adapter", "backend", "np", "per_node"), JOBS)
def test_job_ends_well_and_leaves_nothing(adapter, backend, np, per_node):
    job(adapter, backend, np, per_node).check()
