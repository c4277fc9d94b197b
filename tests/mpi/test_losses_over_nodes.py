"""After ranks of several nodes are killed the others continue while each node has a survivor."""

import contextlib
import os
import random
import signal
import struct
import tempfile
import time

import pytest

import launch
from multiverso import checkpoint as checkpoints

pytestmark = pytest.mark.slow

#: The number of jobs that lose a rank.
KILLS = int(os.environ.get("MULTIVERSO_TEST_KILLS", "3"))
SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)

ADDS = 400


@pytest.fixture(scope="module")
def draw():
    return random.Random(SEED)


def lose(*arguments, np, per_node, victims, delay):
    """Run ranks, some of which are killed; return the result and the adds of the killed ranks."""
    nodes = {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    with launch.Job("losses_over_nodes.py", *arguments, np=np, survives=True, **nodes) as job:
        job.wait_for("busy")
        time.sleep(delay)
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                job.signal(victim, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
        adds = {}
        for victim in victims:
            counts = job.folder / f"adds-{victim}"
            adds[victim] = struct.unpack("2q", counts.read_bytes()) if counts.exists() else (0, 0)
    return result, adds


def check(result, adds, np, folder):
    """All survivors read the same values, and every acknowledged add is in them once."""
    survivors = [rank for rank in range(np) if rank not in adds]
    reports = [result.reports.get(rank, {}) for rank in survivors]
    assert all(report.get("ended") for report in reports), (
        f"MULTIVERSO_TEST_SEED={SEED}\n{result.output}\n{result.reports}"
    )
    assert len({report["digest"] for report in reports}) == 1
    broken = {rank: report["broken"] for rank, report in zip(survivors, reports, strict=True)}
    for rank, report in zip(survivors, reports, strict=True):
        assert report["lost"] == sorted(adds)
        assert report["master"] == (rank == survivors[0])
        assert report["late"] == [5.0 + len(survivors)] * 10
        for other in survivors:
            at_least = ADDS - broken[other][0]
            assert at_least <= report["least"][other] <= report["most"][other] <= ADDS
            assert 2 * (ADDS - broken[other][1]) <= report["rows"][other] <= 2 * ADDS
        for victim, (whole, rows) in adds.items():
            # The last add may have been in flight, and applied in part.
            assert whole <= report["least"][victim] <= report["most"][victim] <= whole + 1
            assert 2 * rows <= report["rows"][victim] <= 2 * rows + 2
        assert report["again"] == report["least"]
    with checkpoints.Checkpoint(folder) as saved:
        saved.verify()
    return sum(sum(one) for one in broken.values())


@pytest.mark.parametrize("number", range(KILLS))
@launch.again_where_mpi_is_stuck
def test_survivors_on_all_nodes_continue(number, draw, tmp_path):
    folder = tempfile.mkdtemp(dir=tmp_path)
    victim = draw.randrange(4)
    result, adds = lose(
        "goes_on", folder, np=4, per_node=2, victims=[victim], delay=draw.random() * 1.2
    )
    check(result, adds, 4, folder)


def test_survivors_continue_after_a_rank_leaves(draw, tmp_path):
    leaver = draw.randrange(4)
    nodes = {"MULTIVERSO_RANKS_PER_NODE": "2"}
    arguments = ("goes_on", str(tmp_path), str(leaver))
    with launch.Job("losses_over_nodes.py", *arguments, np=4, survives=True, **nodes) as job:
        job.announce("killed")
        result = job.finish().check_clean()
        adds = {leaver: struct.unpack("2q", (job.folder / f"adds-{leaver}").read_bytes())}
    check(result, adds, 4, tmp_path)
    # A rank that leaves has no call in flight.
    assert result.reports[(leaver + 1) % 4]["most"][leaver] == ADDS // 3


@pytest.mark.parametrize("number", range(KILLS))
@launch.again_where_mpi_is_stuck
def test_survivors_on_all_nodes_save_load_and_shut_down(number, draw, tmp_path):
    folder = tempfile.mkdtemp(dir=tmp_path)
    victim = draw.randrange(4)
    result, _ = lose("saves", folder, np=4, per_node=2, victims=[victim], delay=draw.random() * 1.0)
    for rank in sorted({0, 1, 2, 3} - {victim}):
        report = result.reports.get(rank, {})
        assert report.get("ended"), f"MULTIVERSO_TEST_SEED={SEED}\n{result.output}"
        assert report["values"] == [3.0, 3.0]
    with checkpoints.Checkpoint(folder) as saved:
        saved.verify()


@launch.again_where_mpi_is_stuck
def test_session_fails_when_a_node_loses_its_last_rank(tmp_path):
    nodes = {"MULTIVERSO_RANKS_PER_NODE": "2"}
    folder = tempfile.mkdtemp(dir=tmp_path)
    arguments = ("loses_a_node", folder)
    with launch.Job("losses_over_nodes.py", *arguments, np=3, survives=True, **nodes) as job:
        job.wait_for("busy")
        victim = job.pid(2)
        job.signal(2, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
    for rank in range(2):
        report = result.reports[rank]
        for name in ("add", "get", "barrier"):
            kind, message = report[name]
            assert kind == "PeerLostError", message
            assert f"rank 2 on {report[f'{name}_about']['host']} (process {victim}) died" in message
            assert report[f"{name}_about"]["rank"] == 2
            assert report[f"{name}_about"]["last_checkpoint"].startswith(folder)
        assert "with rows 6 to 8" in report["add"][1]
        assert "with rows 6 to 8" in report["get"][1]
        assert "node 1 (rank 2 on " in report["barrier"][1]


def test_survivors_on_three_nodes_continue(draw, tmp_path):
    victims = [draw.randrange(2), 2 + draw.randrange(2)]
    result, adds = lose(
        "goes_on", str(tmp_path), np=6, per_node=2, victims=victims, delay=draw.random() * 1.2
    )
    check(result, adds, 6, tmp_path)
