"""``multiverso top`` shows the jobs on this machine without disturbing them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import launch
import multiverso

pytestmark = pytest.mark.slow


def top(*arguments):
    package = str(Path(multiverso.__file__).parents[1])
    environ = {**os.environ, "PYTHONPATH": package, "COLUMNS": "200"}
    command = [sys.executable, "-m", "multiverso", "top", "--once", "--interval", "0.2", *arguments]
    ended = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def look(job):
    """Return the description of a job when all ranks but the first wait in a barrier."""
    mine = {job.pid(rank) for rank in range(job.np)}
    for _ in range(50):
        jobs = json.loads(top("--json"))
        found = [one for one in jobs if {member["pid"] for member in one["members"]} <= mine]
        members = [member for one in found for member in one["members"]]
        if all(one["rank"] == 0 or one["call"].startswith("barrier, in") for one in members):
            break
    return found


@pytest.mark.parametrize(("np", "per_node"), [(1, "1"), (3, "3"), (4, "2")])
def test_top_shows_the_calls_of_the_ranks(np, per_node):
    with launch.Job("top.py", np=np, MULTIVERSO_RANKS_PER_NODE=per_node) as job:
        job.wait_for("waiting", 0)
        nodes = look(job)
        job.announce("seen")
        job.finish().check()
    assert sum(len(node["members"]) for node in nodes) == np
    assert len(nodes) == np // int(per_node)
    for node in nodes:
        assert node["ranks"] == np
        table = next(table for table in node["tables"] if table["name"] == "seen [red]")
        assert table["shape"] == [100, 1]
        assert table["adds"] == 3 * len(node["members"])
        for member in node["members"]:
            assert member["state"] == "here"
            assert member["alive"]
            assert member["calls"] >= 4
            if np > 1 and member["rank"] > 0:
                assert member["call"].startswith("barrier, in it for")
                assert 0 in member["waits_for"] or node["node"] > 0


def test_top_draws_tables():
    pytest.importorskip("rich")
    with launch.Job("top.py", np=2) as job:
        job.wait_for("waiting", 0)
        pid = job.pid(1)
        drawn = top()
        job.announce("seen")
        job.finish().check()
    assert "seen [red]" in drawn
    assert "waits for" in drawn
    assert str(pid) in drawn
