"""SIGTERM to all processes of a job, as batch systems send it, also to those of the ranks."""

import contextlib
import os
import signal

import pytest
from requirements import is_installed

import launch
from multiverso import checkpoint
from multiverso._local.processes import descendants

TOLD = 128 + signal.SIGTERM

#: The processes of the ranks, how the program ends its session, and how its ranks take part.
CASES = (
    ("loader_fork", "bare", "async"),
    ("loader_fork_init", "bare", "async"),
    ("loader_spawn", "bare", "async"),
    ("loader_persistent", "block", "async"),
    ("pool_fork", "block", "async"),
    ("pool_spawn", "bare", "async"),
    ("pool_spawn_init", "block", "async"),
    ("executor_fork", "finally", "async"),
    ("executor_spawn", "bare", "sync"),
    ("executor_spawn_init", "block", "async"),
    ("subprocess", "block", "async"),
    ("subprocess", "bare", "barrier"),
    ("subprocess", "finally", "sync"),
    ("first_subprocess", "bare", "async"),
    ("first_subprocess", "block", "barrier"),
    ("first_subprocess", "finally", "sync"),
    ("fails", "bare", "sync"),
    ("fails", "block", "elastic"),
    ("waits", "block", "async"),
)


def tell_all(job, has_runner):
    """Send SIGTERM to all processes but mpirun: that of Open MPI ends the ranks at once."""
    runner = [job.pid(launch.RUNNER)] if has_runner else []
    ranks = [pid for rank, pid in job.pids().items() if rank != launch.RUNNER]
    for process in runner + [each for pid in ranks for each in (pid, *descendants(pid))]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    job.announce("told")


def saved(folder):
    if checkpoint.latest(folder) is None:
        return None
    with checkpoint.Checkpoint(checkpoint.latest(folder)) as found:
        return found.read("adds").tolist()


@pytest.mark.parametrize(("kind", "end", "mode"), CASES)
@pytest.mark.parametrize("launcher", ["run", "run_mpi", "mpirun"])
def test_a_job_saves_whatever_the_notice_ends(launcher, kind, end, mode, tmp_path):
    if "loader" in kind and not is_installed("torch"):
        pytest.skip("needs PyTorch")
    if mode == "elastic" and launcher != "run":
        pytest.skip("MPI ends the others when a worker leaves")
    folder = tmp_path / "saved"
    options = {"run": [], "run_mpi": ["--mpi"]}.get(launcher)
    mpirun = None if options is None else launch.run_command(tmp_path, "--grace", "12", *options)
    with launch.Job(
        "notices.py", kind, end, mode, str(folder), np=2, mpirun=mpirun, MULTIVERSO_GRACE="12"
    ) as job:
        job.wait_for("busy")
        tell_all(job, has_runner=options is not None)
        result = job.finish()
    assert not result.timed_out, result.output
    assert not result.leftovers, result.output
    adds = sum(report["adds"] for report in result.reports.values())
    # When a rank waits for its pool until its time is over, MPICH's mpirun kills the other one.
    if (launcher, kind) != ("mpirun", "pool_spawn"):
        assert result.returncode == TOLD, result.output
    assert saved(folder) == 8 * [adds], result.output


@pytest.mark.parametrize(("end", "folder"), [("block", "none"), ("bare", "none"), ("bare", "file")])
@pytest.mark.parametrize("options", [[], ["--mpi"]], ids=["run", "run_mpi"])
def test_143_means_saved(options, end, folder, tmp_path):
    mpirun = launch.run_command(tmp_path, "--grace", "12", "--restarts", "1", *options)
    folder = folder if folder == "none" else str(tmp_path / folder)
    with launch.Job("notices.py", "fails", end, "async", folder, np=2, mpirun=mpirun) as job:
        job.wait_for("busy")
        (tmp_path / "file").touch()  # in the place of the folder, so that the save fails
        tell_all(job, has_runner=True)
        result = job.finish()
    assert (result.returncode, result.timed_out, result.leftovers) == (1, False, [])
