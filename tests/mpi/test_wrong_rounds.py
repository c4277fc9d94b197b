"""Wrong programs in sync mode raise errors on every rank, and so do lost and late ranks."""

import functools
import re
import signal

import pytest
from disagreements import PROGRAMS

import launch
from case_jobs import marks

PROGRAM = "wrong_rounds.py"

#: Ranks and ranks per node: all on one node, and on two or three.
JOBS = [(2, 2), (3, 3), (4, 4), (2, 1), (3, 1), (4, 2)]


@functools.cache
def disagreements(np, per_node):
    return launch.run("disagreements.py", np=np, **launch.on_nodes(np, per_node))


# One worker beside a server has no worker to disagree with.
@pytest.mark.parametrize(
    ("np", "per_node", "program"),
    [
        pytest.param(
            *(np, per_node, program),
            id=f"{np} ranks, {per_node} per node: {program.name}",
            marks=marks(np, per_node),
        )
        for np, per_node in JOBS
        for program in PROGRAMS.values()
        if np > 2 or not program.server
    ],
)
def test_different_calls_raise_mismatch_on_every_rank(np, per_node, program):
    result = disagreements(np, per_node)
    for rank in range(int(program.server), np):
        outcomes = result.reports.get(rank, {}).get("outcomes", {})
        assert program.name in outcomes, f"rank {rank} did not come to it:\n{result.output}"
        outcome = outcomes[program.name]
        if not program.texts:
            assert outcome is None
            continue
        kind, message, call = outcome
        assert kind == "MismatchError", f"rank {rank}, {call}: {message}"
        for text in program.texts:
            assert text in message
        assert message.count("rank ") >= 2


@pytest.mark.parametrize(
    ("np", "per_node"), [pytest.param(*job, marks=marks(*job)) for job in JOBS]
)
def test_failed_sessions_leave_nothing_behind(np, per_node):
    disagreements(np, per_node).check()


@pytest.mark.parametrize(("np", "per_node"), [(2, 2), (4, 4), (2, 1), (3, 2)])
def test_late_rank_is_named_in_timeout(np, per_node):
    calls = ("add_get", "get", "aggregate")
    result = launch.run(PROGRAM, "late", *calls, np=np, **launch.on_nodes(np, per_node)).check()
    for call in calls:
        for kind, message in result.errors(*range(np - 1), name=call):
            assert kind == "OperationTimeout", f"{call}: {message}"
            assert f"rank {np - 1}" in message
            assert f"in {call}" in message
            assert call == "aggregate" or "of table 'weights'" in message
        kind, message = result.errors(np - 1, name=call)[0]
        expected = {"AbortedError", "PeerLostError"}
        if np > per_node:
            # The message of the abort may overtake the calls before it, arrive after them, or find
            # the rank already waiting for the same deadline.
            expected |= {"MismatchError", "OperationTimeout"}
        assert kind in expected, f"{call}: {message}"
        assert "waited" in message or "rank 0" in message


def test_ranks_deadlocked_over_two_tables_are_named_in_timeout():
    result = launch.run(PROGRAM, "crossed", np=2).check_clean()
    for kind, message in result.errors(0, 1):
        assert kind in ("OperationTimeout", "AbortedError"), message
        assert "of table 'weights'" in message or "of table 'biases'" in message


# test_faults.py tests all ways in which a script ends.
@pytest.mark.parametrize(
    ("per_node", "how", "texts"),
    [
        (3, "exception", ["ValueError: bad batch 17", "wrong_rounds.py:"]),
        (2, "exception", ["ValueError: bad batch 17", "wrong_rounds.py:"]),
        (3, "exit", ["without mv.shutdown()"]),
        (2, "silently", ["without mv.shutdown()"]),
    ],
)
def test_rank_whose_script_ends_is_named_with_the_reason(per_node, how, texts):
    result = launch.run(PROGRAM, "ends", how, np=3, **launch.on_nodes(3, per_node)).check_clean()
    for kind, message in result.errors(0, 1):
        assert kind == "PeerLostError", message
        assert re.search(r"rank 2 (on \S+ )?left", message), message
        for text in ["add_get", "of table 'weights'", *texts]:
            assert text in message


@pytest.mark.parametrize("per_node", [3, 2])
def test_ctrl_c_ends_a_wait_and_aborts_the_session(per_node):
    calls = ("get", "add_get", "get_rows", "aggregate")
    nodes = launch.on_nodes(3, per_node)
    with launch.Job(PROGRAM, "interrupted", *calls, np=3, **nodes) as job:
        for call in calls:
            job.wait_for(f"waiting-{call}", 0)
            job.signal(0, signal.SIGINT)
        result = job.finish().check()
    for call in calls:
        assert result.errors(0, name=call)[0][0] == "KeyboardInterrupt", call
        assert result.errors(0, name=f"after {call}")[0][0] == "AbortedError", call
        for kind, message in result.errors(1, 2, name=call):
            assert kind == "AbortedError", f"{call}: {message}"
            assert "rank 0" in message
            assert "KeyboardInterrupt" in message


@pytest.mark.parametrize(
    ("per_node", "calls", "mode"),
    [
        (3, "add_get", "sync"),
        (2, "add,get", "sync"),
        (3, "add_rows,get_rows", "sync"),
        (2, "add_rows,get_rows", "sync"),
        (3, "aggregate", "sync"),
        (2, "aggregate", "sync"),
        (3, "add,get", "stale"),
        (2, "add,get", "stale"),
    ],
)
@launch.again_where_mpi_is_stuck
def test_killed_rank_is_named_to_the_ranks_in_its_round(per_node, calls, mode):
    nodes = launch.on_nodes(3, per_node)
    with launch.Job(PROGRAM, "killed", calls, mode, np=3, **nodes) as job:
        job.wait_for("busy")
        pid = job.pid(1)
        job.signal(1, signal.SIGKILL)
        result = job.finish().check_clean()
    for kind, message in result.errors(0, 2):
        assert kind == "PeerLostError", message
        assert re.search(rf"rank 1 (on \S+ )?\(process {pid}\) died", message), message
        assert calls == "aggregate" or "table 'weights'" in message


@pytest.mark.parametrize("calls", ["add_get", "aggregate"])
@launch.again_where_mpi_is_stuck
def test_killed_single_rank_of_a_node_is_named(calls):
    with launch.Job(PROGRAM, "killed", calls, np=3, **launch.on_nodes(3, 1)) as job:
        job.wait_for("busy")
        pid = job.pid(1)
        job.signal(1, signal.SIGKILL)
        result = job.finish().check_clean()
    for kind, message in result.errors(0, 2):
        assert kind == "PeerLostError", message
        assert re.search(rf"rank 1 on \S+ \(process {pid}\) died", message), message
