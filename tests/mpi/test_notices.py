"""What jobs with ``on_term="leave"`` save, and how they end, when processes receive SIGTERM."""

import contextlib
import os
import random
import signal
import time

import pytest
from requirements import is_installed, needs_found_sessions

import launch
from multiverso import checkpoint
from multiverso._local.processes import descendants

ENDED = 128 + signal.SIGTERM

#: The program whose ranks only add.
STEPS = ("notices.py", "trains", "steps", "bare", "async")

LAUNCHERS = ("run", "run_mpi", "mpirun")

#: The processes of the ranks, how the program ends its session, how its ranks take part, and the
#: launchers under which the job runs.
CASES = (
    ("loader_fork", "bare", "async", LAUNCHERS),
    ("loader_fork_init", "bare", "async", ("run",)),
    ("loader_spawn", "bare", "async", ("run",)),
    ("loader_persistent", "block", "async", ("run_mpi",)),
    ("pool_fork", "block", "async", ("mpirun",)),
    ("pool_spawn", "bare", "async", LAUNCHERS),
    ("pool_spawn_init", "block", "async", ("run",)),
    ("executor_fork", "finally", "async", ("run_mpi",)),
    ("executor_spawn", "bare", "sync", ("mpirun",)),
    ("executor_spawn_init", "block", "async", ("run",)),
    ("subprocess", "block", "async", LAUNCHERS),
    ("subprocess", "bare", "barrier", ("run_mpi",)),
    ("subprocess", "finally", "sync", ("mpirun",)),
    ("first_subprocess", "bare", "async", ("run_mpi",)),
    ("first_subprocess", "block", "barrier", ("run",)),
    ("first_subprocess", "finally", "sync", ("mpirun",)),
    ("fails", "bare", "sync", LAUNCHERS),
    ("fails", "block", "elastic", ("run",)),  # MPI ends the others when a worker leaves.
    ("waits", "block", "async", LAUNCHERS),
)
JOBS = [(launcher, *case) for *case, launchers in CASES for launcher in launchers]

#: Ranks, ranks per node, and how the ranks of jobs take part of which one rank is told.
TOLD = [(1, 1, "async"), (3, 3, "sync"), (3, 3, "aggregate"), (4, 2, "async"), (4, 2, "sync"),
        (3, 1, "barrier")]  # fmt: skip


def saved(folder, name="adds"):
    if checkpoint.latest(folder) is None:
        return None
    with checkpoint.Checkpoint(checkpoint.latest(folder)) as found:
        return found.read(name)


def tell_all(job, has_runner):
    """Send SIGTERM to all processes but mpirun: that of Open MPI ends the ranks at once."""
    runner = [job.pid(launch.RUNNER)] if has_runner else []
    ranks = [pid for rank, pid in job.pids().items() if rank != launch.RUNNER]
    for process in runner + [each for pid in ranks for each in (pid, *descendants(pid))]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    job.announce("told")


def interrupt(job, rank, name="busy"):
    """Send SIGTERM to a rank after a random time, and return the result of the job."""
    job.wait_for(name)
    time.sleep(random.uniform(0, 0.3))
    job.signal(rank, signal.SIGTERM)
    result = job.finish().check_clean()
    assert result.returncode == ENDED, result.output
    return result


@pytest.mark.parametrize(("launcher", "kind", "end", "mode"), JOBS)
def test_a_job_saves_whatever_the_notice_ends(launcher, kind, end, mode, tmp_path):
    if "loader" in kind and not is_installed("torch"):
        pytest.skip("needs PyTorch")
    folder = tmp_path / "saved"
    options = {"run": [], "run_mpi": ["--mpi"]}.get(launcher)
    mpirun = None if options is None else launch.run_command(tmp_path, "--grace", "12", *options)
    with launch.Job(
        "notices.py",
        "trains",
        kind,
        end,
        mode,
        str(folder),
        np=2,
        mpirun=mpirun,
        MULTIVERSO_GRACE="12",
    ) as job:
        job.wait_for("busy")
        tell_all(job, has_runner=options is not None)
        result = job.finish()
    assert not result.timed_out, result.output
    assert not result.leftovers, result.output
    adds = sum(report["adds"] for report in result.reports.values())
    # When a rank waits for its pool until its time is over, MPICH's mpirun kills the other one.
    if (launcher, kind) != ("mpirun", "pool_spawn"):
        assert result.returncode == ENDED, result.output
    assert saved(folder).tolist() == 8 * [adds], result.output


@pytest.mark.parametrize(("end", "folder"), [("block", "none"), ("bare", "none"), ("bare", "file")])
@pytest.mark.parametrize("options", [[], ["--mpi"]], ids=["run", "run_mpi"])
def test_143_means_saved(options, end, folder, tmp_path):
    mpirun = launch.run_command(tmp_path, "--grace", "12", "--restarts", "1", *options)
    folder = folder if folder == "none" else str(tmp_path / folder)
    with launch.Job(
        "notices.py", "trains", "fails", end, "async", folder, np=2, mpirun=mpirun
    ) as job:
        job.wait_for("busy")
        (tmp_path / "file").touch()  # in the place of the folder, so that the save fails
        tell_all(job, has_runner=True)
        result = job.finish()
    assert (result.returncode, result.timed_out, result.leftovers) == (1, False, [])


def check_adds(result, folder, np):
    reports = [result.reports[rank] for rank in range(np)]
    assert saved(folder).tolist() == 8 * [sum(report["adds"] for report in reports)]
    for report in reports:
        assert (report["before"], report["is_open"]) == (True, False)
    return min(report["step"] for report in reports)


@pytest.mark.parametrize(("np", "per_node", "mode"), TOLD)
def test_ranks_save_every_add_and_end_when_one_is_told_to(np, per_node, mode, tmp_path):
    folder = tmp_path / "saved"
    options = {"np": np, **launch.on_nodes(np, per_node)}
    with launch.Job("notices.py", "trains", "steps", "bare", mode, str(folder), **options) as job:
        result = interrupt(job, np - 1)
    step = check_adds(result, folder, np)
    if mode == "sync":
        assert {report["step"] for report in result.reports.values()} == {step}
    with launch.Job("notices.py", "trains", "steps", "bare", mode, str(folder), **options) as job:
        resumed = interrupt(job, 0, "resumed")
    adds = sum(report["adds"] for report in result.reports.values())
    for report in resumed.reports.values():
        assert (report["start"], report["loaded"]) == (step, 8 * [adds])


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--mpi"]], ids=["no_mpi", "mpi"])
def test_run_passes_sigterm_to_the_ranks(options, tmp_path):
    folder = tmp_path / "saved"
    mpirun = launch.run_command(tmp_path, "--restarts", "2", *options)
    with launch.Job(*STEPS, str(folder), np=3, mpirun=mpirun) as job:
        result = interrupt(job, launch.RUNNER)
    check_adds(result, folder, 3)
    assert "restart" not in result.output


@pytest.mark.one_mpi
def test_run_restarts_a_job_whose_rank_was_told_to_end(tmp_path):
    folder = tmp_path / "saved"
    mpirun = launch.run_command(tmp_path, "--restarts", "1")
    with launch.Job(*STEPS, str(folder), np=2, mpirun=mpirun) as job:
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
    folder = "none" if folder is None else str(tmp_path / folder)
    options = {"elastic": ["--elastic", "1:4"], "mpi": ["--mpi", "--survive"]}[launcher]
    mpirun = launch.run_command(tmp_path, *options)
    with launch.Job("notices.py", "leaves_alone", folder, np=4, mpirun=mpirun) as job:
        job.wait_for("busy")
        for rank in [launch.RUNNER] if told == "job" else range(4):
            job.signal(rank, signal.SIGTERM)
        result = job.finish().check_clean()
    assert result.returncode == (1 if folder == "none" else ENDED), result.output
    assert result.output.count("its tables are") == 1, result.output
    if folder != "none":
        adds = sum(report["adds"] for report in result.reports.values())
        assert saved(folder).tolist() == 8 * [adds]


@needs_found_sessions
@pytest.mark.one_mpi
def test_elastic_job_has_saved_nothing_if_its_remaining_worker_is_killed(tmp_path):
    folder = tmp_path / "saved"
    mpirun = launch.run_command(tmp_path, "--elastic", "1:4")
    with launch.Job("notices.py", "is_left_alone", str(folder), np=2, mpirun=mpirun) as job:
        job.wait_for("busy")
        job.signal(launch.RUNNER, signal.SIGTERM)
        job.wait_for("left", 0)
        job.signal(1, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
    assert result.returncode == 128 + signal.SIGKILL, result.output
    assert checkpoint.latest(folder) is None


def test_items_of_work_are_done_once(tmp_path):
    folder = tmp_path / "saved"
    with launch.Job("notices.py", "works", str(folder), np=3) as job:
        result = interrupt(job, 0)
    done = saved(folder, "done")
    assert set(done) <= {0, 1}
    assert done.sum() == sum(report["done"] for report in result.reports.values())
    assert (saved(folder, "work")[:-1] == -1).sum() == done.sum()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_adapters_send_the_last_delta(mode, tmp_path):
    folder = tmp_path / "saved"
    with launch.Job("notices.py", "syncs", str(folder), mode, np=2) as job:
        result = interrupt(job, 1)
    steps = sum(report["steps"] for report in result.reports.values())
    assert saved(folder, 0).tolist() == 5 * [steps]


@pytest.mark.parametrize(("mode", "per_node"), [("async", 3), ("sync", 1)])
def test_ranks_in_shutdown_save_with_those_that_train(mode, per_node, tmp_path):
    folder = tmp_path / "saved"
    options = {"np": 3, **launch.on_nodes(3, per_node)}
    with launch.Job("notices.py", "finishes", str(folder), mode, **options) as job:
        result = interrupt(job, 2)
    adds = [result.reports[rank]["adds"] for rank in range(3)]
    assert saved(folder).tolist() == 8 * [sum(adds)]
    assert adds[:2] == [3, 3]
    with checkpoint.Checkpoint(checkpoint.latest(folder)) as found:
        assert found.step == adds[2]
    assert not any(report["is_open"] for report in result.reports.values())


@pytest.mark.one_mpi
def test_a_second_sigterm_ends_a_rank_that_never_asks(tmp_path):
    with launch.Job("notices.py", "ignores", str(tmp_path), np=1) as job:
        job.wait_for("busy")
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < job.deadline:
                job.signal(0, signal.SIGTERM)
                time.sleep(0.3)
        result = job.finish().check_clean()
    assert result.returncode != 0
