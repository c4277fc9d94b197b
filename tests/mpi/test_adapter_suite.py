"""Cases that hold for every adapter, on the frameworks that this environment has."""

import adapter_suite
import pytest
from requirements import THEANOS, is_installed

import launch
from case_jobs import CaseJobs, in_one_job, on_nodes, on_ranks

#: An adapter's file in programs/adapters, the backend of Keras, and the modules that it needs: of a
#: tuple of modules, one.
ADAPTERS = [
    ("torch", "", ["torch"]),
    ("jax", "", ["jax"]),
    ("keras", "jax", ["keras", "jax"]),
    ("keras", "tensorflow", ["keras", "tensorflow"]),
    ("keras", "torch", ["keras", "torch"]),
    ("lasagne", "", ["lasagne"]),
    ("theano", "", [THEANOS]),
    ("sharedvar", "", [THEANOS]),
]

INSTALLED = [
    (adapter, backend) for adapter, backend, modules in ADAPTERS if all(map(is_installed, modules))
]
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not INSTALLED, reason="needs a framework that has an adapter"),
]

#: Adapters that also run on 3 and 4 ranks and on two nodes: one that works in place, and one that
#: copies. The others resemble one of the two, and their frameworks start slowly. The arrays of
#: NumPy, which need no framework, are in test_param_sync.py.
MANY_LAYOUTS = ("torch", "jax")


def jobs_of(adapter, backend):
    """Return the jobs in which an adapter's cases run."""
    options = {
        "arguments": (adapter,),
        "KERAS_BACKEND": backend,
        **launch.ONE_THREAD,
    }
    jobs = on_ranks(1, 2, **options)
    if adapter in MANY_LAYOUTS:
        jobs |= on_ranks(3, 4, **options) | on_nodes((3, 2), **options)
    name = f"{adapter}_on_{backend}" if backend else adapter
    return {f"{name}_{job}": options for job, options in in_one_job(jobs).items()}


JOBS = {job: options for names in INSTALLED for job, options in jobs_of(*names).items()}

TestAdapters = CaseJobs(adapter_suite, JOBS).tests()
