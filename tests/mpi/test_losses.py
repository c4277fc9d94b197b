"""After a rank is killed the others continue without it, or all of them name it."""

import os
import random
import re
import signal
import struct
import time
from pathlib import Path

import pytest

import launch
from multiverso import checkpoint as checkpoints

#: The number of jobs that lose a rank, in each mode.
KILLS = int(os.environ.get("MULTIVERSO_TEST_KILLS", "4"))
NUMBERS = [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, KILLS))]

ADDS = 600


SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)


@pytest.fixture(scope="module")
def draw():
    return random.Random(SEED)


def lose(program, *arguments, victim, delay):
    """Run four ranks and kill one; return the result, its adds, and the time of the kill."""
    with launch.Job("losses.py", program, *arguments, np=4, survives=True) as job:
        job.wait_for("busy")
        time.sleep(delay)
        killed_at = time.monotonic()
        job.signal(victim, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
        counts = job.folder / f"adds-{victim}"
        adds = struct.unpack("2q", counts.read_bytes()) if counts.exists() else (0, 0)
    return result, adds, killed_at


@pytest.mark.parametrize("number", NUMBERS)
def test_survivors_keep_every_acknowledged_add(number, draw, tmp_path):
    victim = draw.randrange(4)
    result, adds, _ = lose("goes_on", str(tmp_path), victim=victim, delay=draw.random() * 0.7)
    survivors = [rank for rank in range(4) if rank != victim]
    for rank in survivors:
        report = result.reports.get(rank, {})
        assert report.get("ended"), f"MULTIVERSO_TEST_SEED={SEED}\n{result.output}"
        assert report["lost"] == [victim]
        assert report["master"] == (rank == survivors[0])
        assert report["late"] == [8.0] * 10
        for other in survivors:
            assert report["least"][other] == report["most"][other] == ADDS
            assert report["rows"][other] == 2 * ADDS
        # The last add may have been in flight, and applied in part.
        assert adds[0] <= report["least"][victim] <= report["most"][victim] <= adds[0] + 1
        assert 2 * adds[1] <= report["rows"][victim] <= 2 * adds[1] + 2
    with checkpoints.Checkpoint(tmp_path) as saved:
        saved.verify()
        whole = saved.read("whole")
    assert [int(whole.min() >> 15 * rank) % 2**15 for rank in survivors] == [ADDS] * 3


@pytest.mark.parametrize("number", NUMBERS)
def test_every_survivor_of_a_round_names_the_dead_rank(number, draw, record_property):
    victim = draw.randrange(4)
    result, _, killed_at = lose("names_the_dead", victim=victim, delay=draw.random() * 0.3)
    for rank in range(4):
        if rank == victim:
            continue
        kind, message = result.reports.get(rank, {}).get("error", ("none", result.output))
        assert kind == "PeerLostError", message
        assert f"rank {victim} " in message
        record_property("seconds", result.reports[rank]["at"] - killed_at)


def test_suspended_rank_is_excluded_and_learns_of_it():
    with launch.Job("losses.py", "is_stopped", "2", np=3) as job:
        job.wait_for("ready")
        job.signal(1, signal.SIGSTOP)
        job.announce("stopped")
        for rank in (0, 2):
            job.wait_for_report(rank)
        job.signal(1, signal.SIGCONT)
        result = job.finish().check_clean()
    assert "rank 1 has sent no heartbeat" in result.output
    for rank in (0, 2):
        kind, message = result.reports[rank]["error"]
        assert kind in ("OperationTimeout", "AbortedError")
        assert "rank 1" in message
        assert "no heartbeat" in message
    assert result.reports[1]["error"][0] == "StateError"


def test_briefly_suspended_rank_continues():
    with launch.Job("losses.py", "is_stopped", "60", np=2) as job:
        job.wait_for("ready")
        job.signal(1, signal.SIGSTOP)
        job.announce("stopped")
        time.sleep(0.5)
        job.signal(1, signal.SIGCONT)
        result = job.finish().check()
    assert [result.reports[rank]["error"] for rank in (0, 1)] == [None, None]


#: Ranks, ranks per node, and the nodes that lose all their ranks at once.
LOST_NODES = [(2, 1, (1,)), (3, 1, (0,)), (3, 2, (1,)), (4, 2, (1,)), (4, 1, (1, 2))]


def node_of(rank, per_node):
    return rank // per_node


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize(("np", "per_node", "nodes"), LOST_NODES)
@launch.again_where_mpi_is_stuck
def test_node_whose_ranks_all_die_is_named_at_once(np, per_node, nodes, mode):
    victims = [rank for rank in range(np) if node_of(rank, per_node) in nodes]
    spread = {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    # No deadline passes before the job's wall limit.
    with launch.Job("losses.py", "loses_nodes", mode, "600", np=np, survives=True, **spread) as job:
        job.wait_for("ready")
        pids = {rank: job.pid(rank) for rank in victims}
        for rank in victims:
            job.signal(rank, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
    for survivor in sorted(set(range(np)) - set(victims)):
        for name in ("call", "barrier"):
            kind, message = result.reports.get(survivor, {}).get(name, ("none", result.output))
            assert kind == "PeerLostError", message
            named = [int(rank) for rank in re.findall(r"rank (\d+) on \S+ \(process", message)]
            assert named, message
            assert set(named) <= set(victims), message
            for rank in named:
                assert f"(process {pids[rank]}) died (its connection with rank" in message
        if mode == "async":
            assert re.search(r"with rows \d+ to \d+", result.reports[survivor]["call"][1])


def stop(job, rank):
    """Suspend a rank, and wait until all of its threads have stopped, which may take a moment."""
    job.signal(rank, signal.SIGSTOP)
    threads = Path(f"/proc/{job.pid(rank)}/task")
    while not all(" T " in (one / "stat").read_text("ascii") for one in threads.iterdir()):
        time.sleep(0.01)


def test_silent_single_rank_node_is_named_after_peer_timeout():
    nodes = {"MULTIVERSO_RANKS_PER_NODE": "1"}
    with launch.Job("losses.py", "loses_nodes", "async", "2", np=2, survives=True, **nodes) as job:
        job.wait_for("ready")
        stop(job, 1)
        job.announce("killed")
        job.wait_for("called", 0)
        job.signal(1, signal.SIGKILL)
        result = job.finish().check_clean()
    kind, message = result.reports[0]["call"]
    assert kind == "PeerLostError", message
    assert "rank 1 on " in message
    assert "has sent no heartbeat for" in message
    assert "with rows 5 to 9" in message
