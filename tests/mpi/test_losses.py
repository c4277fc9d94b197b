"""After ranks are killed, the other ranks continue, or get errors that name the killed ranks."""

import os
import random
import re
import signal
import struct
import time

import pytest

import launch
from multiverso import checkpoint as checkpoints

#: The number of repetitions of a test that kills a rank at random; all but the first are slow.
KILLS = int(os.environ.get("MULTIVERSO_TEST_KILLS", "4"))
REPEATED = [pytest.mark.slow, pytest.mark.one_mpi]
REPETITIONS = [0, *(pytest.param(n, marks=REPEATED) for n in range(1, KILLS))]
SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
#: Adds of each rank to each table, as in programs/losses.py.
ADDS = 400


@pytest.fixture(scope="module")
def rng():
    return random.Random(SEED)


def run_and_kill(*arguments, victim, delay):
    """Run 4 ranks and kill one; return the job's result, and the rank's adds and time of death."""
    with launch.Job("losses.py", *arguments, np=4, survives=True) as job:
        job.wait_for("busy")
        time.sleep(delay)
        killed_at = time.monotonic()
        job.signal(victim, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
        counts = job.folder / f"adds-{victim}"
        adds = struct.unpack("2q", counts.read_bytes()) if counts.exists() else (0, 0)
    return result, adds, killed_at


def check_survivors(result, victim, adds, folder):
    """Check that survivors read equal values, which contain every acknowledged add once."""
    survivors = [rank for rank in range(4) if rank != victim]
    reports = [result.reports.get(rank, {}) for rank in survivors]
    assert all(report.get("ended") for report in reports), (
        f"MULTIVERSO_TEST_SEED={SEED}\n{result.output}\n{result.reports}"
    )
    assert len({report["digest"] for report in reports}) == 1
    for rank, report in zip(survivors, reports, strict=True):
        assert report["lost"] == [victim]
        assert report["master"] == (rank == survivors[0])
        assert report["new_table"] == [5.0 + len(survivors)] * 10
        for other in survivors:
            assert report["min_counts"][other] == report["max_counts"][other] == ADDS
            assert report["row_counts"][other] == 2 * ADDS
        # The last add of the victim may have been applied in part.
        whole, rows = adds
        least, most = report["min_counts"][victim], report["max_counts"][victim]
        assert whole <= least <= most <= whole + 1
        assert 2 * rows <= report["row_counts"][victim] <= 2 * rows + 2
        assert report["reloaded"] == report["min_counts"]
    with checkpoints.Checkpoint(folder) as saved:
        saved.verify()


@pytest.mark.parametrize("number", REPETITIONS)
def test_survivors_keep_every_acknowledged_add(number, rng, tmp_path):
    victim = rng.randrange(4)
    arguments = ("continues", str(tmp_path))
    result, adds, _ = run_and_kill(*arguments, victim=victim, delay=rng.random() * 0.6)
    check_survivors(result, victim, adds, tmp_path)


@pytest.mark.slow
def test_survivors_continue_after_a_rank_leaves(rng, tmp_path):
    leaver = rng.randrange(4)
    arguments = ("continues", str(tmp_path), str(leaver))
    with launch.Job("losses.py", *arguments, np=4, survives=True) as job:
        job.announce("killed")
        result = job.finish().check_clean()
        adds = struct.unpack("2q", (job.folder / f"adds-{leaver}").read_bytes())
    check_survivors(result, leaver, adds, tmp_path)
    # A rank that leaves has no call in flight.
    assert result.reports[(leaver + 1) % 4]["max_counts"][leaver] == ADDS // 3


def share_items(np, victims, when, delay):
    """Run a job that shares items while ranks are killed; return the counts of the survivors."""
    arguments = ("shares_items", ",".join(map(str, victims)), when)
    with launch.Job("losses.py", *arguments, np=np, survives=True) as job:
        job.wait_for("busy", *victims)
        time.sleep(delay)
        for victim in victims:
            job.signal(victim, signal.SIGKILL)
        result = job.finish().check_clean()
    reports = [result.reports.get(rank, {}) for rank in range(np) if rank not in victims]
    assert all(report.get("ended") for report in reports), f"{SEED} {result.output}"
    return [report["counts"] for report in reports]


@pytest.mark.parametrize(("np", "victims"), [(2, [0]), (3, [1, 2]), (4, [3])])
def test_item_of_a_killed_worker_is_handed_out_again(np, victims):
    for counts in share_items(np, victims, "holding", 0):
        assert counts == [1] * len(counts)


@pytest.mark.parametrize("number", REPETITIONS)
def test_only_the_item_of_a_killed_worker_is_done_twice(number, rng):
    victim = rng.randrange(4)
    for counts in share_items(4, [victim], "random", rng.random() * 0.1):
        assert min(counts) == 1
        assert sum(counts) <= len(counts) + 1


@pytest.mark.parametrize("number", REPETITIONS)
def test_every_survivor_of_a_round_names_the_dead_rank(number, rng, record_property):
    victim = rng.randrange(4)
    result, _, killed_at = run_and_kill("names_the_dead", victim=victim, delay=rng.random() * 0.3)
    for rank in range(4):
        if rank == victim:
            continue
        kind, message = result.reports.get(rank, {}).get("error", ("none", result.output))
        assert kind == "PeerLostError", message
        assert f"rank {victim} " in message
        record_property("seconds", result.reports[rank]["error_time"] - killed_at)


def test_suspended_rank_is_excluded_and_learns_of_it():
    with launch.Job("losses.py", "waits_for_a_suspended_rank", "4", np=3) as job:
        job.wait_for("ready")
        job.suspend(1)
        job.announce("suspended")
        for rank in (0, 2):
            job.wait_for_report(rank)
        job.signal(1, signal.SIGCONT)
        result = job.finish().check_clean()
    assert "rank 1 has sent no heartbeat" in result.output
    for kind, message in result.errors(0, 2):
        assert kind in ("OperationTimeout", "AbortedError")
        assert "rank 1" in message
        assert "no heartbeat" in message
    assert result.reports[1]["error"][0] == "StateError"


def test_briefly_suspended_rank_continues():
    with launch.Job("losses.py", "waits_for_a_suspended_rank", "60", np=2) as job:
        job.wait_for("ready")
        job.suspend(1)
        job.announce("suspended")
        time.sleep(0.5)
        job.signal(1, signal.SIGCONT)
        result = job.finish().check()
    assert [result.reports[rank]["error"] for rank in (0, 1)] == [None, None]


#: Ranks, ranks per node, and those that die at once: all of one node or of two, or one of several.
LOST_RANKS = [
    (2, 1, [1]),
    (3, 1, [0]),
    (3, 2, [2]),
    (4, 2, [2, 3]),
    (4, 1, [1, 2]),
    (4, 2, [0]),
    (4, 2, [3]),
]


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize(("np", "per_node", "victims"), LOST_RANKS)
@launch.again_where_mpi_is_stuck
def test_dead_ranks_are_named_on_all_nodes_at_once(np, per_node, victims, mode):
    options = {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    # No timeout of the session passes before that of the job.
    arguments = ("loses_nodes", mode, "600", "all_reported")
    with launch.Job("losses.py", *arguments, np=np, survives=True, **options) as job:
        job.wait_for("ready")
        pids = {rank: job.pid(rank) for rank in victims}
        for rank in victims:
            job.signal(rank, signal.SIGKILL)
        job.announce("killed")
        survivors = sorted(set(range(np)) - set(victims))
        job.wait_for("reported", *survivors)
        job.announce("all_reported")
        result = job.finish().check_clean()
    for survivor in survivors:
        # A rank calls the rows of its own node without the others there.
        has_neighbour = any(rank // per_node == survivor // per_node for rank in victims)
        for name in ("barrier",) if has_neighbour and mode == "async" else ("call", "barrier"):
            kind, message = result.reports.get(survivor, {}).get(name, ("none", result.output))
            assert kind == "PeerLostError", message
            named = [int(rank) for rank in re.findall(r"rank (\d+) on \S+ \(process", message)]
            assert named, message
            assert set(named) <= set(victims), message
            for rank in named:
                assert f"(process {pids[rank]}) died" in message
        if mode == "async" and not has_neighbour:
            assert re.search(r"with rows \d+ to \d+", result.reports[survivor]["call"][1])


def test_silent_single_rank_node_is_named_after_peer_timeout():
    nodes = {"MULTIVERSO_RANKS_PER_NODE": "1"}
    with launch.Job("losses.py", "loses_nodes", "async", "4", np=2, survives=True, **nodes) as job:
        job.wait_for("ready")
        job.suspend(1)
        job.announce("killed")
        job.wait_for("called", 0)
        job.signal(1, signal.SIGKILL)
        result = job.finish().check_clean()
    kind, message = result.reports[0]["call"]
    assert kind == "PeerLostError", message
    assert "rank 1 on " in message
    assert "has sent no heartbeat for" in message
    assert "with rows 5 to 9" in message
