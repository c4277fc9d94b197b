"""``multiverso top`` shows the jobs on this machine without disturbing them."""

import json
from collections import Counter

import pytest
from programs import run_python
from requirements import needs_found_sessions

import launch

pytestmark = [needs_found_sessions, pytest.mark.slow, pytest.mark.one_mpi]


def top(*arguments):
    options = ("--once", "--interval", "0.2", *arguments)
    status, out, err = run_python("-m", "multiverso", "top", *options, timeout=60, COLUMNS="200")
    assert status == 0, err
    return out


def nodes_in_barrier(job):
    """Return what top shows of a job's nodes when all ranks but the first wait in a barrier."""
    pids = {job.pid(rank) for rank in range(job.np)}
    for _ in range(50):
        all_nodes = json.loads(top("--json"))
        nodes = [node for node in all_nodes if {rank["pid"] for rank in node["members"]} <= pids]
        members = [member for node in nodes for member in node["members"]]
        if all(rank["rank"] == 0 or rank["call"].startswith("barrier, in") for rank in members):
            break
    return nodes


@pytest.mark.parametrize(("np", "per_node"), [(1, "1"), (3, "3"), (4, "2")])
def test_top_shows_the_calls_of_the_ranks(np, per_node):
    with launch.Job("top.py", np=np, MULTIVERSO_RANKS_PER_NODE=per_node) as job:
        job.wait_for("ready", 0)
        nodes = nodes_in_barrier(job)
        job.announce("seen")
        job.finish().check()
    assert sum(len(node["members"]) for node in nodes) == np
    assert len(nodes) == np // int(per_node)
    counts = Counter()
    for node in nodes:
        assert node["ranks"] == np
        table = next(table for table in node["tables"] if table["name"] == "seen [red]")
        assert table["shape"] == [100, 1]
        assert table["adds"] == 3 * len(node["members"])
        assert table["keys"] is None
        keys = next(table for table in node["tables"] if table["name"] == "keys")
        assert keys["shape"] == [50, 2]
        counts.update(keys["keys"])
        for member in node["members"]:
            assert member["state"] == "here"
            assert member["alive"]
            assert member["calls"] >= 4
            if np > 1 and member["rank"] > 0:
                assert member["call"].startswith("barrier, in it for")
                assert 0 in member["waits_for"] or node["node"] > 0
    assert counts["keys"] == counts["removals"] == np
    assert counts["misses"] == counts["admissions"] == 2 * np


def test_top_draws_tables():
    pytest.importorskip("rich")
    with launch.Job("top.py", np=2) as job:
        job.wait_for("ready", 0)
        pid = job.pid(1)
        drawn = top()
        job.announce("seen")
        job.finish().check()
    assert "seen [red]" in drawn
    assert "waits for" in drawn
    assert str(pid) in drawn
