"""The adapters of frameworks in elastic jobs, in which a worker joins and leaves."""

import importlib.util
import os
import subprocess
import sys

import pytest
from requirements import needs_found_sessions

import launch

pytestmark = [needs_found_sessions, pytest.mark.frameworks, pytest.mark.one_mpi]

PROGRAM = "elastic_adapters.py"
#: Seconds, because frameworks start slowly.
TIMEOUT = 2 * launch.JOB_TIMEOUT


@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_joiner_has_the_model_of_the_session(framework, tmp_path):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    arguments = [framework, str(tmp_path / "checkpoint")]
    mpirun = launch.run_command(tmp_path, "--elastic", "1:2")
    variables = {**launch.ONE_THREAD, "KERAS_BACKEND": os.environ.get("KERAS_BACKEND", "torch")}
    with launch.Job(PROGRAM, *arguments, np=1, mpirun=mpirun, timeout=TIMEOUT, **variables) as job:
        job.wait_for("changed")
        command = [sys.executable, "-m", "multiverso", "join", job.folder.name]
        joiner = subprocess.run(
            [*command, str(launch.PROGRAMS / PROGRAM), *arguments],
            env=job.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        result = job.finish()
    assert joiner.returncode == 0, joiner.stdout + joiner.stderr + result.output
    # The joiner does not begin with values of its own, but with those that the first has made.
    assert result.check().reports == {
        0: {"began": [1], "together": [211], "alone": [1211], "loaded": [211]},
        1: {"began": [11], "together": [211]},
    }
