"""Faults of one rank: which errors the other ranks get, and that the job leaves nothing behind."""

import re
import signal
import sys
from pathlib import Path

import pytest

import launch

ROOT = Path(__file__).parents[2]

COLLECTIVE_CALLS = ("create", "barrier", "collective_get")
ROUND_CALLS = ("add_get", "get", "aggregate")

#: What the errors quote about the end of a script, for each way in which `faults.ends` ends it.
REASONS = {
    "exception": ["ValueError: bad batch 17", "faults.py:"],
    "block": ["KeyError", "lost in the block", "faults.py:"],
    "exit": ["without mv.shutdown()"],
    "silently": ["without mv.shutdown()"],
}


@pytest.mark.parametrize(
    ("np", "per_node", "calls"),
    [
        (2, 2, COLLECTIVE_CALLS),
        (4, 4, COLLECTIVE_CALLS),
        (2, 1, COLLECTIVE_CALLS),
        (4, 1, COLLECTIVE_CALLS),
        (2, 2, ROUND_CALLS),
        (4, 4, ROUND_CALLS),
        (2, 1, ROUND_CALLS),
        (3, 2, ROUND_CALLS),
    ],
)
def test_late_rank_is_named_in_timeout_and_learns_of_it(np, per_node, calls):
    nodes = launch.on_nodes(np, per_node)
    result = launch.run("faults.py", "late", *calls, np=np, **nodes).check()
    for call in calls:
        for kind, message in result.errors(*range(np - 1), name=call):
            assert kind == "OperationTimeout", f"{call}: {message}"
            assert f"rank {np - 1}" in message
            if call in ROUND_CALLS:
                assert f"in {call}" in message
            if call in ("collective_get", "add_get", "get"):
                assert "weights" in message
        kind, message = result.errors(np - 1, name=call)[0]
        expected = {"AbortedError", "PeerLostError"}
        if np > per_node:
            # The rank may time out in the call before the message about the abort arrives.
            expected.add("OperationTimeout")
            if call in ROUND_CALLS:
                # The message may also arrive before or after those about calls, which then differ.
                expected.add("MismatchError")
        assert kind in expected, f"{call}: {message}"
        assert "waited" in message or re.search(rf"rank [0-{np - 2}]\b", message), message


def test_ranks_deadlocked_over_two_tables_are_named_in_timeout():
    result = launch.run("faults.py", "deadlocks_over_two_tables", np=2).check_clean()
    for kind, message in result.errors(0, 1):
        assert kind in ("OperationTimeout", "AbortedError"), message
        assert "of table 'weights'" in message or "of table 'biases'" in message


# Either of the waiting ranks 0 and 1 may end the job before the other one prints its error.
@launch.needs_mpi
@pytest.mark.parametrize(
    ("what_instead", "patterns"),
    [
        (
            "nothing",
            (r"OperationTimeout: rank [01] of 3 .*: mv.init: MPI_Init has not returned within 6",),
        ),
        ("initializes_mpi", ("OperationTimeout: init: waited for", "rank [01] ends the job")),
        (
            "initializes_mpi_while_others_exit",
            ("handled: init: waited", "after a failed start: MPI_Finalize"),
        ),
        ("raises", ("rank 2 ends the job", "ValueError: bad batch 17")),
    ],
)
def test_job_ends_if_a_rank_never_calls_init(what_instead, patterns):
    result = launch.run("faults.py", "no_init", what_instead, np=3).check_clean()
    assert result.returncode != 0
    for pattern in patterns:
        assert re.search(pattern, result.output), result.output


@pytest.mark.parametrize(("np", "per_node"), [(2, 2), (3, 2)])
def test_error_of_a_background_call_reaches_the_wait_and_the_flush(np, per_node):
    nodes = launch.on_nodes(np, per_node)
    result = launch.run("faults.py", "late", "result", "flush", np=np, **nodes).check()
    for call in ("result", "flush"):
        for kind, message in result.errors(*range(np - 1), name=call):
            # The first rank whose deadline passes aborts the session, and another may not wait yet.
            is_told = kind == "AbortedError" and re.search(
                r"aborted the session: .* waited", message
            )
            assert kind == "OperationTimeout" or is_told, f"{call}: {message}"
            assert f"rank {np - 1}" in message, message
            assert "'weights', get" in message, message


@pytest.mark.parametrize(
    ("np", "per_node", "calls"),
    [
        (2, 2, ("barrier", "create", "collective_get", "shutdown")),
        (2, 1, ("barrier", "create", "collective_get", "shutdown")),
        (3, 3, ("get", "add_get", "get_rows", "aggregate")),
        (3, 2, ("get", "add_get", "get_rows", "aggregate")),
    ],
)
def test_ctrl_c_ends_a_wait_and_aborts_the_session(np, per_node, calls):
    nodes = launch.on_nodes(np, per_node)
    with launch.Job("faults.py", "interrupted", *calls, np=np, **nodes) as job:
        for call in calls:
            job.wait_for(f"waiting-{call}", 0)
            job.signal(0, signal.SIGINT)
        result = job.finish().check()
    for call in calls:
        assert result.errors(0, name=call)[0][0] == "KeyboardInterrupt", call
        if np == 3:
            assert result.errors(0, name=f"after {call}")[0][0] == "AbortedError", call
        for kind, message in result.errors(*range(1, np), name=call):
            assert kind == "AbortedError", f"{call}: {message}"
            assert "rank 0" in message
            assert "KeyboardInterrupt" in message


# A segment in a file has a name until every rank has mapped it. A job that is killed before leaves
# the file to the next job, so files are only a fallback, and "create" is not tested with them.
@pytest.mark.parametrize(
    ("when", "segments", "per_node"),
    [
        *((when, "", 3) for when in ("start", "init", "create", "barrier", "work")),
        *((when, "file", 3) for when in ("init", "work")),
        *((when, "", 2) for when in ("init", "work")),
    ],
)
def test_killed_rank_leaves_nothing_behind(when, segments, per_node):
    options = {"MULTIVERSO_SEGMENTS": segments, **launch.on_nodes(3, per_node)}
    with launch.Job("faults.py", "killed", when, np=3, **options) as job:
        job.wait_for("busy")
        job.signal(1, signal.SIGKILL)
        result = job.finish().check_clean()
    assert result.returncode != 0


@pytest.mark.parametrize(
    ("per_node", "calls", "mode"),
    [
        (3, "add_get", "sync"),
        (2, "add,get", "sync"),
        (1, "add_get", "sync"),
        (3, "add_rows,get_rows", "sync"),
        (2, "add_rows,get_rows", "sync"),
        (3, "aggregate", "sync"),
        (2, "aggregate", "sync"),
        (1, "aggregate", "sync"),
        (3, "add,get", "stale"),
        (2, "add,get", "stale"),
    ],
)
@launch.again_where_mpi_is_stuck
def test_killed_rank_is_named_to_the_ranks_in_its_round(per_node, calls, mode):
    nodes = launch.on_nodes(3, per_node)
    with launch.Job("faults.py", "killed_in_calls", calls, mode, np=3, **nodes) as job:
        job.wait_for("busy")
        pid = job.pid(1)
        job.signal(1, signal.SIGKILL)
        result = job.finish().check_clean()
    for kind, message in result.errors(0, 2):
        assert kind == "PeerLostError", message
        assert re.search(rf"rank 1 (on \S+ )?\(process {pid}\) died", message), message
        assert calls == "aggregate" or "table 'weights'" in message


# The end of a script concerns its own process only, so each way is tested on the last rank only.
@pytest.mark.parametrize(
    ("per_node", "how", "call", "returncode"),
    [
        (3, "exception", "barrier", 1),
        (3, "block", "barrier", 1),
        (3, "exit", "barrier", 3),
        (3, "silently", "barrier", 0),
        (1, "exception", "barrier", None),
        (2, "block", "barrier", None),
        (1, "silently", "barrier", None),
        (2, "silently", "barrier", None),
        (3, "exception", "add_get", None),
        (2, "exception", "add_get", None),
        (3, "exit", "add_get", None),
        (2, "silently", "add_get", None),
    ],
)
def test_rank_whose_script_ends_is_named_with_the_reason(per_node, how, call, returncode):
    nodes = launch.on_nodes(3, per_node)
    result = launch.run("faults.py", "ends", how, call, np=3, **nodes).check_clean()
    assert returncode in (None, result.returncode)
    for kind, message in result.errors(0, 1):
        assert kind == "PeerLostError", message
        assert re.search(r"rank 2 (on \S+ )?left", message), message
        for text in REASONS[how]:
            assert text in message
        if call == "add_get":
            assert "add_get" in message
            assert "of table 'weights'" in message


@pytest.mark.parametrize("how", ["script", "mpi4py"])
def test_forked_children_do_not_disturb_the_job(how):
    result = launch.run("faults.py", "forks", how, np=2).check()
    for rank in (0, 1):
        assert result.reports[rank] == {"child": 5, "values": [2.0] * 4}


@launch.needs_mpi
@pytest.mark.parametrize(
    ("function", "np", "expected"),
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
def test_mpi4py_in_the_same_process(function, np, expected):
    result = launch.run("faults.py", function, np=np).check()
    for rank in range(np):
        report = result.reports[rank]
        assert report["size"] == np
        if "error" in expected:
            assert report["error"][0] == expected["error"]
        if "values" in expected:
            assert report["values"] == [np]


def other_mpiruns():
    """Return the mpirun of each environment of this project that has another MPI."""
    paths = ROOT.glob(".venv*/bin/mpirun")
    return [path for path in paths if _is_open_mpi(path) != _is_open_mpi(Path(sys.executable))]


def _is_open_mpi(program):
    """Return whether a program belongs to an environment with Open MPI."""
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
