"""``mv.init(on_term="leave")``: what jobs save, and how they end, when ranks receive SIGTERM."""

import contextlib
import random
import signal
import time

import pytest
from requirements import needs_found_sessions

import launch
from multiverso import checkpoint

ENDED = 128 + signal.SIGTERM

MODES = ("async", "sync", "barriers", "aggregates")


def saved(folder, name):
    with checkpoint.Checkpoint(checkpoint.latest(folder)) as found:
        return found.read(name)


def interrupt(job, rank, name="busy"):
    """Send SIGTERM to a rank after a random time, and return the result of the job."""
    job.wait_for(name)
    time.sleep(random.uniform(0, 0.3))
    job.signal(rank, signal.SIGTERM)
    result = job.finish().check_clean()
    assert result.returncode == ENDED, result.output
    return result


def check_adds(result, folder, np):
    reports = [result.reports[rank] for rank in range(np)]
    assert saved(folder, "adds").tolist() == 8 * [sum(report["adds"] for report in reports)]
    for report in reports:
        assert (report["before"], report["is_open"]) == (True, False)
    return min(report["step"] for report in reports)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("np", "ranks_per_node"), [(1, 0), (3, 0), (4, 2), (3, 1)])
def test_ranks_save_every_add_and_end_when_one_is_told_to(mode, np, ranks_per_node, tmp_path):
    folder = tmp_path / "saved"
    environ = {"MULTIVERSO_RANKS_PER_NODE": str(ranks_per_node)} if ranks_per_node else {}
    with launch.Job("leaving.py", "trains", str(folder), mode, np=np, **environ) as job:
        result = interrupt(job, np - 1)
    step = check_adds(result, folder, np)
    if mode == "sync":
        assert {report["step"] for report in result.reports.values()} == {step}
    with launch.Job("leaving.py", "trains", str(folder), mode, np=np, **environ) as job:
        resumed = interrupt(job, 0, "resumed")
    adds = sum(report["adds"] for report in result.reports.values())
    for report in resumed.reports.values():
        assert (report["start"], report["loaded"]) == (step, 8 * [adds])


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--mpi"]], ids=["no_mpi", "mpi"])
def test_run_passes_sigterm_to_the_ranks(options, tmp_path):
    folder = tmp_path / "saved"
    mpirun = launch.run_command(tmp_path, "--restarts", "2", *options)
    with launch.Job("leaving.py", "trains", str(folder), "async", np=3, mpirun=mpirun) as job:
        result = interrupt(job, launch.RUNNER)
    check_adds(result, folder, 3)
    assert "restart" not in result.output


@pytest.mark.one_mpi
def test_run_restarts_a_job_whose_rank_was_told_to_end(tmp_path):
    folder = tmp_path / "saved"
    mpirun = launch.run_command(tmp_path, "--restarts", "1")
    with launch.Job("leaving.py", "trains", str(folder), "async", np=2, mpirun=mpirun) as job:
        job.wait_for("busy")
        job.signal(1, signal.SIGTERM)
        result = interrupt(job, 0, "resumed")
    assert result.output.count("restart 1 of 1") == 1


@needs_found_sessions
@pytest.mark.parametrize(
    ("launcher", "told", "folder"),
    [
        pytest.param("elastic", "job", "saved", marks=pytest.mark.one_mpi),
        pytest.param("elastic", "job", None, marks=pytest.mark.one_mpi),
        pytest.param("elastic", "ranks", "saved", marks=pytest.mark.one_mpi),
        ("mpi", "job", "saved"),
    ],
)
def test_one_worker_of_an_elastic_job_saves_when_all_are_told(launcher, told, folder, tmp_path):
    folder = folder and tmp_path / folder
    options = {"elastic": ["--elastic", "1:4"], "mpi": ["--mpi", "--survive"]}[launcher]
    mpirun = launch.run_command(tmp_path, *options)
    with launch.Job("leaving.py", "leaves_alone", str(folder), np=4, mpirun=mpirun) as job:
        job.wait_for("busy")
        for rank in [launch.RUNNER] if told == "job" else range(4):
            job.signal(rank, signal.SIGTERM)
        result = job.finish().check_clean()
    assert result.returncode == (ENDED if folder else 1), result.output
    assert result.output.count("its tables are") == 1, result.output
    if folder:
        adds = sum(report["adds"] for report in result.reports.values())
        assert saved(folder, "adds").tolist() == 8 * [adds]


@needs_found_sessions
@pytest.mark.one_mpi
def test_elastic_job_has_saved_nothing_if_its_remaining_worker_is_killed(tmp_path):
    folder = tmp_path / "saved"
    mpirun = launch.run_command(tmp_path, "--elastic", "1:4")
    with launch.Job("leaving.py", "is_left_alone", str(folder), np=2, mpirun=mpirun) as job:
        job.wait_for("busy")
        job.signal(launch.RUNNER, signal.SIGTERM)
        job.wait_for("left", 0)
        job.signal(1, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
    assert result.returncode == 128 + signal.SIGKILL, result.output
    assert checkpoint.latest(folder) is None


@pytest.mark.parametrize("np", [1, 3])
def test_items_of_work_are_done_once(np, tmp_path):
    folder = tmp_path / "saved"
    with launch.Job("leaving.py", "works", str(folder), np=np) as job:
        result = interrupt(job, 0)
    done = saved(folder, "done")
    assert set(done) <= {0, 1}
    assert done.sum() == sum(report["done"] for report in result.reports.values())
    assert (saved(folder, "work")[:-1] == -1).sum() == done.sum()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_adapters_send_the_last_delta(mode, tmp_path):
    folder = tmp_path / "saved"
    with launch.Job("leaving.py", "syncs", str(folder), mode, np=2) as job:
        result = interrupt(job, 1)
    steps = sum(report["steps"] for report in result.reports.values())
    assert saved(folder, 0).tolist() == 5 * [steps]


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("ranks_per_node", [0, 1])
def test_ranks_in_shutdown_save_with_those_that_train(mode, ranks_per_node, tmp_path):
    folder = tmp_path / "saved"
    environ = {"MULTIVERSO_RANKS_PER_NODE": str(ranks_per_node)} if ranks_per_node else {}
    with launch.Job("leaving.py", "finishes", str(folder), mode, np=3, **environ) as job:
        result = interrupt(job, 2)
    adds = [result.reports[rank]["adds"] for rank in range(3)]
    assert saved(folder, "adds").tolist() == 8 * [sum(adds)]
    assert adds[:2] == [3, 3]
    with checkpoint.Checkpoint(checkpoint.latest(folder)) as found:
        assert found.step == adds[2]
    assert not any(report["is_open"] for report in result.reports.values())


@pytest.mark.one_mpi
def test_a_second_sigterm_ends_a_rank_that_never_asks(tmp_path):
    with launch.Job("leaving.py", "ignores", str(tmp_path), np=1) as job:
        job.wait_for("busy")
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < job.deadline:
                job.signal(0, signal.SIGTERM)
                time.sleep(0.3)
        result = job.finish().check_clean()
    assert result.returncode != 0
