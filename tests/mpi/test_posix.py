"""Jobs with the library for macOS and other POSIX systems, on Linux (cmake/posix.cmake)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import consistency
import pytest
import semantics

import launch
from case_jobs import CaseJobs, on_ranks

LIBRARY = Path(__file__).parents[2] / "build" / "cmake" / "libmultiverso_posix.so"
USED = {"MULTIVERSO_LIBRARY": str(LIBRARY)}

pytestmark = [
    pytest.mark.one_mpi,
    pytest.mark.release,
    pytest.mark.skipif(not LIBRARY.exists(), reason=f"needs {LIBRARY}: make test-posix"),
]

TestTables = CaseJobs(semantics, on_ranks(4, **USED)).tests()

TestModes = CaseJobs(consistency, on_ranks(2, mpirun=launch.WITHOUT_MPI, **USED)).tests()


def test_library_tells_its_platform():
    code = "from multiverso._native import library; print(library.lib.MV_BuildInfo().decode())"
    command = [sys.executable, "-c", code]
    printed = subprocess.check_output(command, env={**os.environ, **USED}, text=True)
    assert json.loads(printed)["platform"] == "posix"


@pytest.mark.parametrize("np", [1, 3])
def test_sessions_without_mpi_follow_each_other(np):
    program = ("local_jobs.py", "several_sessions")
    reports = launch.run(*program, np=np, mpirun=launch.WITHOUT_MPI, **USED).check().reports
    assert [reports[rank]["has_mpi"] for rank in range(np)] == [False] * np


@pytest.mark.parametrize("per_node", [3, 2])
@launch.again_where_mpi_is_stuck
def test_killed_rank_is_named(per_node):
    options = {"np": 3, "survives": True, **launch.on_nodes(3, per_node), **USED}
    result = launch.run("faults.py", "killed, rounds", **options).check_clean()
    for kind, message in result.errors(0, 1, name="add_get"):
        assert (kind, "rank 2" in message) == ("PeerLostError", True), message


def test_what_needs_linux_says_so():
    result = launch.run("posix.py", np=2, **USED).check()
    for name in ("elastic", "join", "attach", "on disk"):
        for kind, message in result.errors(0, 1, name=name):
            assert kind == "UnsupportedError", message
            assert "expected Linux" in message
