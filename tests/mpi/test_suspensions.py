"""Ranks are suspended and resume: a lost rank changes nothing, and late answers are dropped."""

import contextlib
import os
import signal
import time

import failpoints
import pytest

import launch

SEED = os.environ.get("MULTIVERSO_TEST_SEED", "20261125")

NODES = {"MULTIVERSO_RANKS_PER_NODE": "1"}


@pytest.mark.one_mpi
def test_each_call_gets_its_own_answer_after_calls_that_ended_without_theirs():
    with launch.Job("suspensions.py", "gets_its_own_answers", SEED, np=2, **NODES) as job:
        result = job.finish()
    result.check_clean()
    assert result.reports.get(0, {}).get("error", "no report") is None, result.output


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_node_that_was_lost_by_silence_stays_lost(mode):
    options = {"np": 3, "survives": True, **NODES}
    with launch.Job("suspensions.py", "loses_a_silent_node", mode, **options) as job:
        job.wait_for("ready", 0, 1, 2)
        job.suspend(1)
        job.announce("suspended")
        job.wait_for("has-lost", 0, 2)
        job.announce("resumed")
        job.signal(1, signal.SIGCONT)
        result = job.finish().check_clean()
    for rank, kind, text in (
        (0, "PeerLostError", "rank 1"),
        (1, "StateError", "has excluded rank 1"),
        (2, "PeerLostError", "rank 1"),
    ):
        report = result.reports[rank]
        assert report.get("over"), result.output
        outcomes = {name: outcome for name, outcome in report.items() if name[-2:] in ("-0", "-1")}
        assert len(outcomes) >= (2 if mode == "sync" else 26)
        wrong = {
            name: outcome
            for name, outcome in outcomes.items()
            if outcome is None or outcome[0] != kind or text not in outcome[1]
        }
        assert not wrong, f"rank {rank}: {wrong}\n{result.output}"


@failpoints.needs_failpoints
def test_ranks_suspended_in_calls_change_nothing_after_the_others_went_on():
    options = {"np": 8, "survives": True, "MULTIVERSO_LIBRARY": str(failpoints.LIBRARY)}
    with launch.Job("suspensions.py", "stops_in_calls", **options) as job:
        job.wait_for("went-on", 0)
        for rank in range(1, 8):
            with contextlib.suppress(ProcessLookupError):
                job.signal(rank, signal.SIGCONT)
        job.announce("resumed")
        result = job.finish().check_clean()
    report = result.reports.pop(0)
    assert not result.reports, f"ranks have returned from their calls: {result.reports}"
    assert report.pop("lost") == [*range(1, 8)]
    # The add of a suspended rank was made in part: that is all of it that anyone ever sees.
    for values in report.pop("values"):
        assert values == [1, 2], result.output
    assert not [error for error in report.values() if error is not None]


@failpoints.needs_failpoints
@pytest.mark.parametrize(
    ("where", "nodes"),
    [
        *[(where, 1) for where in ("array", "rows", "keys", "background", "sync", "barrier")],
        *[(where, 2) for where in ("array", "sync", "other node", "service")],
    ],
)
def test_session_that_fails_ends_for_a_silent_rank(where, nodes):
    options = launch.on_nodes(4, 4 // nodes) if nodes > 1 else {}
    options = {"survives": True, "MULTIVERSO_LIBRARY": str(failpoints.LIBRARY), **options}
    with launch.Job("suspensions.py", "ends_for_a_silent_rank", where, np=4, **options) as job:
        job.wait_for("has-lost", 0, 1, 2)
        job.signal(3, signal.SIGCONT)
        result = job.finish().check_clean()
    kinds = {"OperationTimeout"} | ({"PeerLostError"} if nodes > 1 else set())
    later = kinds | ({"AbortedError"} if nodes > 1 else set())  # of calls after the session's end
    for rank in range(3):
        for name, expected in (("first", kinds), ("barrier", later)):
            kind, text = result.reports[rank][name] or ("no error", "")
            assert kind in expected, f"{rank} {name}: {kind}: {text}\n{result.output}"
            assert "rank 3" in text
    resumed = result.reports[3]
    if where in ("sync", "barrier", "other node", "service"):  # It resumes outside of calls.
        assert resumed.pop("resumed") is None
    for name, error in resumed.items():
        assert error is not None, f"{name}: no error\n{result.output}"
        assert error[0] == "StateError", f"{name}: {error}"
        assert "has excluded rank 3" in error[1]


def test_job_that_was_suspended_as_a_whole_loses_no_rank():
    with launch.Job("suspensions.py", "is_suspended_as_a_whole", np=4, survives=True) as job:
        job.wait_for("ready")
        for rank in range(4):
            job.suspend(rank)
        time.sleep(3)  # longer than peer_timeout
        for rank in range(4):
            job.signal(rank, signal.SIGCONT)
            time.sleep(0.3)
        job.announce("resumed")
        result = job.finish().check()
    assert [result.reports[rank] for rank in range(4)] == [{"lost": []}] * 4, result.output
