"""Tables in folders: of several ranks and nodes, from session to session, and of killed jobs."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import launch
from launch import on_nodes, run

PROGRAMS = Path(__file__).parent / "programs"
COUNTED = PROGRAMS / "counted.py"
#: Kills of a job with so many ranks.
KILLS = 5


@pytest.mark.one_mpi
def test_another_number_of_nodes_is_refused(tmp_path):
    run(COUNTED, str(tmp_path / "rows"), np=2, **on_nodes(2, 1)).check()
    result = run(COUNTED, str(tmp_path / "rows"), np=2)
    assert result.returncode != 0
    assert "a number of nodes of 2, this table 1" in result.output


@pytest.mark.one_mpi
def test_nodes_with_rows_of_different_sessions_are_refused(tmp_path):
    two_nodes = {"np": 2, **on_nodes(2, 1)}
    folder = tmp_path / "rows"
    run(COUNTED, str(folder), **two_nodes).check()
    shutil.copytree(folder / "node-1", tmp_path / "earlier")
    run(COUNTED, str(folder), **two_nodes).check()
    later = tmp_path / "later"
    (folder / "node-1").rename(later)
    shutil.copytree(tmp_path / "earlier", folder / "node-1")
    for _ in range(2):  # The refusal changes nothing.
        result = run(COUNTED, str(folder), **two_nodes)
        assert result.returncode != 0
        assert "rows of another session on node 1 than on node 0" in result.output
    shutil.rmtree(folder / "node-1")
    assert "another session" in run(COUNTED, str(folder), **two_nodes).output
    assert not (folder / "node-1").exists()
    later.rename(folder / "node-1")
    assert "found 2" in run(COUNTED, str(folder), **two_nodes).check().output


@pytest.mark.one_mpi
@pytest.mark.parametrize("victim", [0, 2])
def test_a_session_that_continues_without_a_rank_ends_well(victim, tmp_path):
    arguments = (str(tmp_path), str(victim))
    first = run("lost_on_disk.py", *arguments, np=3, survives=True).check_clean()
    survivors = [report for report in first.reports.values() if "digest" in report]
    assert len(survivors) == 2, first.output
    second = run("lost_on_disk.py", str(tmp_path), "-1", np=1).check()
    assert second.reports[0]["reopened"] == [True, True]
    assert {report["digest"] for report in survivors} == {second.reports[0]["digest"]}


def start(folder, np):
    command = [sys.executable, "-m", "multiverso", "run", "-np", str(np), COUNTED, folder]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=launch.environment(),
        start_new_session=True,
    )


@pytest.mark.one_mpi
@pytest.mark.parametrize("np", [1, 2])
def test_a_killed_job_leaves_files_of_its_start_or_its_end_or_none(np, tmp_path):
    rng = random.Random(np)
    ended, longest, folder = 0, 2.0, tmp_path / "rows"
    for _ in range(KILLS):
        job = start(folder, np)
        try:
            output, _ = job.communicate(timeout=rng.uniform(0.2, longest))
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            output, _ = job.communicate(timeout=60)
        check = start(folder, np)
        try:
            found, _ = check.communicate(timeout=launch.JOB_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(check.pid, signal.SIGKILL)
            raise
        if "did not end well" in found:
            assert "ended" not in output.splitlines()
            shutil.rmtree(folder)
            ended = 0
            continue
        count = int(found.partition("found ")[2].split()[0])
        # The killed job may have ended its session without having printed so.
        assert count == ended + 1 or (count == ended and "ended" not in output.splitlines()), (
            output,
            found,
        )
        assert "ended" in found
        ended = count + 1
