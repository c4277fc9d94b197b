"""``multiverso top`` shows the jobs on this machine without disturbing them."""

import contextlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections import Counter
from urllib.error import HTTPError
from urllib.request import urlopen

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
        assert (node["ranks"], node["mode"]) == (np, "async")
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


@contextlib.contextmanager
def served():
    """Yield the address at which ``multiverso top --prometheus`` serves, and its process."""
    command = [sys.executable, "-m", "multiverso", "top", "--prometheus", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process.stderr.readline().removeprefix("multiverso top: serves ").strip(), process
        finally:
            process.terminate()


def samples(text):
    """Return {(metric, labels): value} of metrics in the text format, which has each pair once."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups()
            pairs = tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
            assert ",".join(f'{key}="{text}"' for key, text in pairs) == labels
            assert (name, pairs) not in found
            found[name, pairs] = float(value)
    return found


def test_prometheus_finds_the_counts_of_all_ranks_and_tables():
    with launch.Job("top.py", np=4, MULTIVERSO_RANKS_PER_NODE="2") as job, served() as (address, _):
        job.wait_for("ready", 0)
        with urlopen(address, timeout=60) as answer:
            kind, text = answer.headers["Content-Type"], answer.read().decode()
        with pytest.raises(HTTPError, match="404"):
            urlopen(address.removesuffix("/metrics") + "/other", timeout=60)
        job.announce("seen")
        job.finish().check()
    assert kind.startswith("text/plain; version=0.0.4")
    found = samples(text)
    adds = [
        value
        for (name, pairs), value in found.items()
        if name == "multiverso_table_adds_total" and ("table", "seen [red]") in pairs
    ]
    assert adds == [6, 6]
    sessions = {dict(pairs)["session"] for _, pairs in found if ("table", "seen [red]") in pairs}
    ups = [
        value
        for (name, pairs), value in found.items()
        if name == "multiverso_rank_up" and dict(pairs)["session"] in sessions
    ]
    assert ups == [1] * 4
    if shutil.which("promtool"):
        check = ["promtool", "check", "metrics"]
        checked = subprocess.run(check, input=text, text=True, capture_output=True, timeout=60)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_prometheus_outlives_clients_that_reset_or_send_nothing():
    with served() as (address, process), contextlib.ExitStack() as clients:
        host, port = address.removeprefix("http://").removesuffix("/metrics").split(":")
        threads = f"/proc/{process.pid}/task"
        before = len(os.listdir(threads))

        def connect():
            return clients.enter_context(socket.create_connection((host, int(port)), timeout=60))

        for request in (b"", b"GET /met", b"GET /metrics HTTP/1.0\r\n\r\n" * 99, b"\xff\n\n"):
            client = connect()
            client.sendall(request)
            # Without lingering, close() resets the connection.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        silent = [connect() for _ in range(40)]
        with urlopen(address, timeout=60) as answer:
            assert answer.status == 200
        # The oldest have been ended, and the latest ones wait for their turn to ask.
        assert silent[0].recv(1) == b""
        assert len(os.listdir(threads)) <= before
        process.terminate()
        assert "Traceback" not in process.stderr.read()


def test_top_draws_tables():
    with launch.Job("top.py", np=2) as job:
        job.wait_for("ready", 0)
        pid = job.pid(1)
        drawn = top()
        job.announce("seen")
        job.finish().check()
    assert "seen [red]" in drawn
    assert "waits for" in drawn
    assert str(pid) in drawn
