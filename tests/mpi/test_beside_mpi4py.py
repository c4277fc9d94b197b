"""Programs that use mpi4py, too, and launchers of another MPI."""

import sys
from pathlib import Path

import pytest

import launch

ROOT = Path(__file__).parents[2]


@launch.needs_mpi
@pytest.mark.parametrize(
    ("function", "np", "expected"),
    [
        ("before", 3, {}),
        ("after", 1, {}),
        ("after", 3, {}),
        ("initialized_by_hand", 3, {"error": "StateError"}),
        ("finalized_after_shutdown", 3, {"error": "StateError"}),
        ("finalized_before_shutdown", 3, {"values": [3]}),
    ],
)
def test_mpi4py_in_the_same_process(function, np, expected):
    result = launch.run("beside_mpi4py.py", function, np=np).check()
    for rank in range(np):
        report = result.reports[rank]
        found = {**report, "error": report["error"][0]} if "error" in report else report
        assert found == {"size": np, **expected}


def other_mpiruns():
    """Return the mpirun of each environment of this project that has another MPI."""
    paths = ROOT.glob(".venv*/bin/mpirun")
    return [path for path in paths if _is_open_mpi(path) != _is_open_mpi(Path(sys.executable))]


def _is_open_mpi(program):
    """Return whether a program belongs to an environment with Open MPI."""
    return (program.parent / "ompi_info").exists()


def test_mpirun_of_another_mpi_raises_launcher_error():
    others = other_mpiruns()
    if not others:
        pytest.skip("there is no environment with another MPI beside this one")
    for mpirun in others:
        result = launch.run("beside_mpi4py.py", "after", np=2, mpirun=mpirun).check_clean()
        assert result.returncode != 0
        assert "LauncherError" in result.output
        assert str(launch.find_mpirun()) in result.output
