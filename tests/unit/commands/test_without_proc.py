"""The package on systems that have neither /proc nor the functions that only Linux has."""

import json
import os
import subprocess
import sys

import pytest

from multiverso._commands import _system_info, _trial, main
from multiverso._local import processes
from multiverso._mpi import mpirun
from multiverso.errors import UnsupportedError

#: Functions of `os` that macOS does not have.
ONLY_LINUX = ("eventfd", "memfd_create", "pidfd_open", "posix_fadvise", "sched_getaffinity")


@pytest.fixture(autouse=True)
def no_linux(monkeypatch, tmp_path):
    for name in ONLY_LINUX:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(processes, "PROC", tmp_path / "proc")
    monkeypatch.setattr(_system_info, "_MEMORY_INFO", tmp_path / "proc" / "meminfo")


def test_all_modules_of_the_core_can_be_imported():
    code = (
        f"import ctypes.util, os, sys\nsys.platform = 'darwin'\n"
        f"for name in {ONLY_LINUX}:\n    hasattr(os, name) and delattr(os, name)\n"
        "import multiverso._commands, multiverso.checkpoint, multiverso.learn"
    )
    library = str(_system_info.library.library_path())  # whose name differs on macOS
    environment = {**os.environ, "MULTIVERSO_LIBRARY": library}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


def test_processes_that_a_process_has_started_cannot_be_found():
    with pytest.raises(UnsupportedError, match="needs Linux"):
        processes.join_targets(1)


def test_all_cores_are_allowed():
    assert mpirun.allowed_cores() == os.cpu_count()


def test_info_has_the_memory(capsys):
    assert main(["info", "--json"]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert memory["total"] > 0
    assert memory["available"] is None
    assert main(["info"]) == 0
    assert "\nmemory " in capsys.readouterr().out


def test_trial_that_ignores_the_end_is_killed(monkeypatch):
    monkeypatch.setattr(_trial, "_GRACE", 1.0)
    command = ["sh", "-c", "trap '' TERM; echo ready; sleep 1000"]
    # Its output can be read to the end only if none of its processes still runs.
    assert _trial.run_trial(command, 2.0) == _trial.TrialResult(None, "ready\n", "")
