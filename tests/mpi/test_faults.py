"""The effects of a fault of one rank on the other ranks and on later jobs."""

import re
import signal
import sys
from pathlib import Path

import pytest

import launch

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("np", [2, 4])
def test_late_rank_is_named_in_timeout_and_learns_of_it(np):
    calls = ("create", "barrier", "get")
    result = launch.run("faults.py", "late", *calls, np=np).check()
    for call in calls:
        for kind, message in result.errors(*range(np - 1), name=call):
            assert kind == "OperationTimeout", f"{call}: {message}"
            assert f"rank {np - 1}" in message
            assert call != "get" or "weights" in message
        kind, message = result.errors(np - 1, name=call)[0]
        assert kind in ("AbortedError", "PeerLostError"), f"{call}: {message}"
        assert re.search(rf"rank [0-{np - 2}] (on \S+ )?(gave|left)", message), message


def test_init_times_out_if_a_rank_never_calls_it():
    result = launch.run("faults.py", "late_init", np=3).check_clean()
    for kind, message in result.errors(0, 1):
        assert kind == "OperationTimeout"
        assert message


def test_ctrl_c_ends_a_wait_and_aborts_the_session():
    calls = ("barrier", "create", "get", "shutdown")
    with launch.Job("faults.py", "interrupted", *calls, np=2) as job:
        for call in calls:
            job.wait_for(f"waiting-{call}", 0)
            job.signal(0, signal.SIGINT)
        result = job.finish().check()
    for call in calls:
        assert result.errors(0, name=call)[0][0] == "KeyboardInterrupt", call
        kind, message = result.errors(1, name=call)[0]
        assert kind == "AbortedError", f"{call}: {message}"
        assert "rank 0" in message
        assert "KeyboardInterrupt" in message


# A file has a name until every rank has mapped it. A job that is killed before that leaves it to
# the next job, which is why files are only the fallback for segments.
@pytest.mark.parametrize(
    ("when", "segments"),
    [
        *((when, "") for when in ("start", "init", "create", "barrier", "work")),
        *((when, "file") for when in ("init", "work")),
    ],
)
def test_killed_rank_leaves_nothing_behind(when, segments):
    with launch.Job("faults.py", "killed", when, np=3, MULTIVERSO_SEGMENTS=segments) as job:
        job.wait_for("busy")
        job.signal(1, signal.SIGKILL)
        result = job.finish().check_clean()
    assert result.returncode != 0


@pytest.mark.parametrize(
    ("how", "texts", "returncode"),
    [
        ("exception", ["ValueError: bad batch 17", "faults.py:"], 1),
        ("block", ["KeyError", "lost in the block", "faults.py:"], 1),
        ("exit", ["without mv.shutdown()"], 3),
        ("silently", ["without mv.shutdown()"], 0),
    ],
)
def test_rank_whose_script_ends_is_named_with_the_reason(how, texts, returncode):
    result = launch.run("faults.py", "ends", how, np=3).check_clean()
    assert result.returncode == returncode
    for kind, message in result.errors(0, 1):
        assert kind == "PeerLostError"
        for text in ["rank 2", *texts]:
            assert text in message


@pytest.mark.parametrize("how", ["script", "mpi4py"])
def test_forked_children_do_not_disturb_the_job(how):
    result = launch.run("faults.py", "forks", how, np=2).check()
    for rank in (0, 1):
        assert result.reports[rank] == {"child": 5, "values": [2.0] * 4}


@pytest.mark.parametrize(
    ("order", "np", "also"),
    [
        ("mpi4py_before", 3, {}),
        ("mpi4py_after", 1, {}),
        ("mpi4py_after", 3, {}),
        ("mpi4py_initialized_by_hand", 3, {"error": "StateError"}),
        ("mpi4py_finalized_after_shutdown", 3, {"error": "StateError"}),
        ("mpi4py_finalized_before_shutdown", 1, {"values": True}),
        ("mpi4py_finalized_before_shutdown", 3, {"values": True}),
    ],
)
def test_mpi4py_in_the_same_process(order, np, also):
    result = launch.run("faults.py", order, np=np).check()
    for rank in range(np):
        report = result.reports[rank]
        assert report["size"] == np
        if "error" in also:
            assert report["error"][0] == also["error"]
        if "values" in also:
            assert report["values"] == [np]


def other_mpiruns():
    """Return the mpirun of each environment of this project that has another MPI."""
    here = Path(sys.prefix).resolve()
    found = [path for path in ROOT.glob(".venv*/bin/mpirun") if path.parents[1].resolve() != here]
    return [path for path in found if _family(path) != _family(Path(sys.executable))]


def _family(program):
    return (program.parent / "ompi_info").exists()


def test_mpirun_of_another_mpi_raises_launcher_error():
    others = other_mpiruns()
    if not others:
        pytest.skip("there is no environment with another MPI beside this one")
    for mpirun in others:
        result = launch.run("faults.py", "ends", "silently", np=2, mpirun=mpirun).check_clean()
        assert result.returncode != 0
        assert "LauncherError" in result.output
        assert str(launch.find_mpirun()) in result.output
