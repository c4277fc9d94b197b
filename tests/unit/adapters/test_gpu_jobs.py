"""Workers that share a GPU run the cases of every adapter, in jobs of ``multiverso run``."""

import os

import pytest
from programs import run_python
from requirements import is_installed

import launch
from multiverso import devices

pytestmark = pytest.mark.frameworks

#: How to ask a framework whether it finds a GPU, and its name of that device.
FRAMEWORKS = {
    "torch": ("torch.cuda.is_available()", "cuda"),
    "jax": ("jax.default_backend() == 'gpu'", "gpu"),
}


def has_gpu(framework):
    """Return whether a framework finds a GPU, in a process of its own."""
    if not devices._visible_gpus() or not is_installed(framework):
        return False
    code = f"import {framework}; print({FRAMEWORKS[framework][0]})"
    return run_python("-c", code, XLA_PYTHON_CLIENT_PREALLOCATE="false")[1].strip() == "True"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_workers_of_one_gpu_do_what_those_of_cores_do(framework, tmp_path):
    # MULTIVERSO_TEST_GPU=cpu runs the same job without a GPU, to test this test.
    device = os.environ.get("MULTIVERSO_TEST_GPU", FRAMEWORKS[framework][1])
    if not is_installed(framework) or (device != "cpu" and not has_gpu(framework)):
        pytest.skip(f"needs {framework} with a GPU")
    options = {"timeout": 2 * launch.JOB_TIMEOUT, "MULTIVERSO_TEST_DEVICE": device}
    options |= {"mpirun": launch.run_command(tmp_path), **launch.ONE_THREAD}
    launch.run("adapter_suite.py", framework, np=2, **options).check_cases()
