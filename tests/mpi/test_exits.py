"""A rank waits for the others before MPI_Finalize, not forever, and names those it misses."""

import signal

import pytest

import launch

pytestmark = launch.needs_mpi


@pytest.mark.parametrize(
    ("how", "where", "absent"),
    [
        ("exception", "in_session", 0),
        ("exception", "after_shutdown", 2),
        ("exit", "after_shutdown", 0),
        ("exit", "in_session", 2),
        ("exception", "imports_mpi4py_first", 2),
    ],
)
def test_rank_that_ends_names_the_rank_that_is_in_a_call_of_its_own(how, where, absent):
    result = launch.run("exits.py", "elsewhere", how, where, str(absent), np=3).check_clean()
    assert result.returncode == (1 if how == "exception" else 3), result.output
    assert f"s at its end for rank {absent}, which has died or still runs" in result.output


@pytest.mark.parametrize(
    ("mode", "call", "per_node"),
    [("async", "barrier", 3), ("sync", "get", 3), ("async", "barrier", 1), ("sync", "get", 2)],
)
@launch.again_where_mpi_is_stuck
def test_survivors_end_at_once_though_mpi_would_wait_for_the_dead_rank(mode, call, per_node):
    nodes = launch.on_nodes(3, per_node)
    with launch.Job("exits.py", "loses", mode, call, np=3, survives=True, **nodes) as job:
        job.wait_for("ready")
        job.signal(2, signal.SIGKILL)
        result = job.finish().check_clean()
    for kind, message in result.errors(0, 1):
        assert kind == "PeerLostError", message
        assert "rank 2" in message


def test_survivors_end_after_the_timeout_if_a_rank_dies_after_its_shutdown():
    with launch.Job("exits.py", "loses_after_shutdown", np=3, survives=True) as job:
        job.wait_for("ready")
        job.signal(2, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
    assert [result.reports[rank].get("ended") for rank in (0, 1)] == [True, True]
    assert "s at its end for rank 2, which has died or still runs" in result.output
