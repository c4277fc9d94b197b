"""The harness leaves no processes behind, and repeats tests that are stuck in MPI."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import job_watchdog
import launch

pytestmark = pytest.mark.slow

#: A test run with a job that never ends by itself.
TEST_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import launch

with launch.Job("runs.py", "sleeps", np=2, survives=sys.argv[2] == "survives") as job:
    job.wait_for("busy")
    print(job.folder, flush=True)
    job.finish()
"""


@pytest.mark.parametrize("launcher_mode", ["plain", "survives"])
def test_killing_the_test_run_kills_its_job(launcher_mode):
    command = [sys.executable, "-c", TEST_RUN, str(Path(launch.__file__).parent), launcher_mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        folder = run.stdout.readline().strip()
        assert folder, "the job did not start"
        mark = f"{launch.MARK}={folder}"
        pids = job_watchdog.processes(mark)
        run.send_signal(signal.SIGKILL)
    try:
        assert len(pids) >= 3  # mpirun and two ranks
        deadline = time.monotonic() + launch.GRACE
        while Path(folder).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert job_watchdog.processes(mark) == []
        assert not Path(folder).exists()
    finally:
        job_watchdog.kill(mark)
        shutil.rmtree(folder, ignore_errors=True)


def write_program(folder, seconds):
    """Return the path of a program that logs that it is stuck in MPI, and ends later."""
    code = f"print({launch.STUCK_IN_MPI.decode()!r}, '9 s'); time.sleep({seconds})"
    (folder / "program.py").write_text(f"import time; {code}")
    return folder / "program.py"


def test_job_stuck_in_mpi_is_ended_and_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "GRACE", 0.5)
    program = write_program(tmp_path, seconds=1e6)
    folders = []

    @launch.again_where_mpi_is_stuck
    def get_stuck():
        with launch.Job(program, np=1) as job:
            folders.append(job.folder)
            job.finish()

    with pytest.raises(launch.MpiStuckError, match="9 s"):
        get_stuck()
    assert len(folders) == 3
    assert not any(folder.exists() for folder in folders)


def test_job_that_ends_after_the_log_message_is_not_treated_as_stuck(tmp_path):
    result = launch.run(write_program(tmp_path, seconds=1), np=1).check()
    assert "9 s" in result.output


def test_rank_that_nothing_kills_fails_its_job(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(launch.PROGRAMS)!r})\n"
        "import worker\nworker.begin()\nworker.wait_for_kill(timeout=0.1)\n",
        "utf-8",
    )
    with pytest.raises(AssertionError, match=r"nothing killed ranks \[0\]"):
        launch.run(program, np=1).check_clean()
