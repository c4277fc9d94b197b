"""Elastic jobs on one machine: ranks that join, leave, die and are replaced."""

import contextlib
import signal
import subprocess
import sys

import pytest
from requirements import needs_found_sessions

import launch

# The jobs use no MPI, so they are the same in the environments of both.
pytestmark = [needs_found_sessions, pytest.mark.one_mpi]

PROGRAM = str(launch.PROGRAMS / "elastic.py")


@contextlib.contextmanager
def start(folder, np, *arguments, workers="1:8", respawn=False):
    """Start an elastic job."""
    options = ["--elastic", workers, *(["--respawn"] if respawn else [])]
    mpirun = launch.run_command(folder, *options)
    with launch.Job("elastic.py", *arguments, np=np, mpirun=mpirun) as job:
        yield job


def join(job, target, np, *arguments):
    """Run ``multiverso join`` in the environment of a job; return its exit code and output."""
    command = [sys.executable, "-m", "multiverso", "join", target, "-np", str(np)]
    joined = subprocess.run(
        [*command, PROGRAM, *arguments],
        env=job.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=launch.JOB_TIMEOUT,
        check=False,
    )
    return joined.returncode, joined.stdout + joined.stderr


def check_joined(job, target, np, *arguments):
    """Let processes join a job; return the job's result when all have ended well."""
    code, output = join(job, target, np, *arguments)
    result = job.finish()
    assert code == 0, output + result.output
    return result.check()


@pytest.mark.parametrize("np", [2, 4])
def test_killed_rank_is_replaced_and_its_item_is_done(np, tmp_path):
    victim = np - 1
    with start(tmp_path, np, "shares_items", str(victim), respawn=True) as job:
        job.wait_for("holding", victim)
        job.signal(victim, signal.SIGKILL)
        result = job.finish().check()
    assert sorted(result.reports) == [rank for rank in range(np + 1) if rank != victim]
    for rank, report in result.reports.items():
        assert report["counts"] == [1] * len(report["counts"])
        assert report["is_joiner"] == (rank == np)
        # The replacement has the GPU of the rank that it replaces.
        assert report["local_rank"] == (victim if rank == np else rank)
    assert "was ended by SIGKILL" in result.output
    assert result.output.count("replaces it") == 1


@pytest.mark.parametrize(
    ("np", "joiners", "target"), [(1, 2, "name"), (3, 1, "rank"), (2, 2, "launcher")]
)
def test_joiners_take_part_in_the_calls_that_follow(np, joiners, target, tmp_path):
    size = np + joiners
    with start(tmp_path, np, "joins", str(size)) as job:
        job.wait_for("busy")
        pids = {"rank": job.pid(np - 1), "launcher": job.pid(launch.RUNNER)}
        name = str(pids.get(target, job.folder.name))
        result = check_joined(job, name, joiners, "joins", str(size))
    assert sorted(result.reports) == list(range(size))
    for rank, report in result.reports.items():
        assert report["sums"] == [1 + size] * 3
        assert report["numbers"] == [size, size, rank]
        assert report["membership"] == [size, list(range(size)), []]
        assert report["workers"] == list(range(size))
        assert report["is_master"] == (rank == 0)
        if rank > 0:
            assert report["error"][0] == "StateError"
    others = list(range(1, size))
    assert result.reports[0]["left"] == [1, size, others]
    versions = result.reports[0]["versions"]
    assert versions == sorted(set(versions))
    assert versions[-1] == size + len(others)


def test_average_divides_by_the_workers_of_each_sync(tmp_path):
    with start(tmp_path, 1, "averages") as job:
        job.wait_for("synced")
        result = check_joined(job, job.folder.name, 1, "averages")
    # 12 alone, 6 from each of two, and 12 alone.
    assert result.reports[0]["seen"] == [24.0, -2.0, 36.0]
    assert result.reports[1]["seen"] == [24.0, -2.0]


def test_values_of_the_next_master_are_used_when_the_first_has_left(tmp_path):
    with start(tmp_path, 2, "master_leaves") as job:
        result = job.finish().check()
    assert result.reports[1] == {"master": True, "values": [7.0, 5.0, 7.0]}


def test_full_session_and_wrong_target_refuse_joiners(tmp_path):
    with start(tmp_path, 1, "stays", workers="1:1") as job:
        job.wait_for("busy")
        code, output = join(job, job.folder.name, 1, "stays")
        assert (code, "has no free place" in output) == (1, True), output
        code, output = join(job, "no_such_job", 1, "stays")
        assert code == 1
        assert "there is no job no_such_job" in output
        assert f"'{job.folder.name}' with the processes" in output
        job.signal(launch.RUNNER, signal.SIGTERM)
        result = job.finish().check_clean()
    assert result.returncode == 128 + signal.SIGTERM
