"""Jobs on two hosts that are network namespaces: messages over TCP, started by a launch agent."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import semantics

import hosts
import launch

MPIRUN = Path(__file__).with_name("mpirun")


@pytest.fixture(scope="module")
def two_hosts():
    reason = hosts.missing()
    if reason:
        pytest.skip(reason)
    with hosts.Hosts(2) as both:
        yield both


def received(namespace):
    """Return how many bytes have come to a host over its network."""
    done = subprocess.run(
        ["ip", "-n", namespace, "-json", "-statistics", "link", "show", "eth0"],
        check=True,
        capture_output=True,
        text=True,
        timeout=hosts.LIMIT,
    )
    return json.loads(done.stdout)[0]["stats64"]["rx"]["bytes"]


def listed():
    """Return the names of all network namespaces, as one text."""
    command = ["ip", "netns", "list"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run(two_hosts, program, *arguments, np, **environ):
    return launch.run(program, *arguments, np=np, mpirun=MPIRUN, **two_hosts.environ, **environ)


@pytest.mark.parametrize("np", [2, 3, 4])
def test_ranks_of_a_host_share_memory_and_others_write_to_each_other(two_hosts, np):
    before = [received(name) for name in two_hosts.namespaces.values()]
    reports = run(two_hosts, "nodes.py", "places", np=np).check().reports
    after = [received(name) for name in two_hosts.namespaces.values()]
    per_host = -(-np // 2)
    for rank in range(np):
        assert reports[rank]["num_nodes"] == 2
        assert reports[rank]["node"] == rank // per_host
        assert reports[rank]["values"] == list(range(11))
    for more, less in zip(after, before, strict=True):
        assert more > less


@pytest.mark.parametrize(
    ("program", "np"), [("semantics.py", 2), ("semantics.py", 4), ("consistency.py", 3)]
)
def test_cases(two_hosts, program, np):
    seed = os.environ.get("MULTIVERSO_TEST_SEED", str(semantics.SEED))
    result = run(two_hosts, program, np=np, MULTIVERSO_TEST_SEED=seed).check()
    for rank in range(np):
        failed = {
            name: outcome
            for name, outcome in result.reports[rank]["outcomes"].items()
            if outcome != "ok"
        }
        assert not failed, f"rank {rank}, seed {seed}: {failed}"


def test_values_cross_the_network(two_hosts):
    names = list(two_hosts.namespaces.values())
    before = [received(name) for name in names]
    run(two_hosts, "nodes.py", "tables_are_freed", np=2).check()
    after = [received(name) for name in names]
    for more, less in zip(after, before, strict=True):
        assert more - less > 12 * 32 * 2**20  # half of each of twelve deltas of 64 MB


def test_bytes_of_a_sync_round_do_not_depend_on_the_number_of_workers(two_hosts):
    names = list(two_hosts.namespaces.values())
    sizes = {}
    for np in (2, 4):
        totals = []
        for rounds in (10, 30):
            before = [received(name) for name in names]
            run(two_hosts, "nodes.py", "sync_rounds", str(rounds), np=np).check()
            after = [received(name) for name in names]
            totals.append([more - less for more, less in zip(after, before, strict=True)])
        sizes[np] = [(more - less) / 20 for less, more in zip(*totals, strict=True)]
    for one, two in zip(sizes[2], sizes[4], strict=True):
        # The sum one way, the total the other; starting the two jobs took about as many bytes.
        assert one > 0.9e6
        assert two < 1.02 * one


def test_hosts_go_also_if_the_command_fails():
    reason = hosts.missing()
    if reason:
        pytest.skip(reason)
    both = hosts.Hosts(2)
    namespaces = list(both.namespaces.values())

    def fail_inside():
        with both:
            assert all(name in listed() for name in namespaces)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert not any(name in listed() for name in namespaces)
