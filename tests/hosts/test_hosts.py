"""Jobs on two simulated hosts: messages over TCP, a killed host, and a pulled network cable."""

import functools
import json
import os
import re
from pathlib import Path

import pytest
import semantics
from fault_rows import ROWS_OF_HOSTS
from programs import output_of

import hosts
import launch
from multiverso._mpi.mpirun import find_mpirun, mpirun_vendor

pytestmark = pytest.mark.slow

MPIRUN = Path(__file__).with_name("mpirun")


@pytest.fixture(scope="module")
def two_hosts():
    reason = hosts.why_unavailable()
    if reason:
        pytest.skip(reason)
    with hosts.Hosts(2) as pair:
        yield pair


def received_bytes(namespaces, since=(0, 0)):
    """Return the number of bytes that each host has received since an earlier call."""
    command = ("ip", "-json", "-statistics", "-n")
    links = [output_of(*command, name, "link", "show", "eth0") for name in namespaces]
    totals = [json.loads(link)[0]["stats64"]["rx"]["bytes"] for link in links]
    return [total - earlier for total, earlier in zip(totals, since, strict=True)]


def run(two_hosts, program, *arguments, np, **environ):
    return launch.run(program, *arguments, np=np, mpirun=MPIRUN, **two_hosts.environ, **environ)


@pytest.fixture(scope="module")
def cases(two_hosts):
    """Return a function that runs a program's cases once and counts the bytes each host gets."""

    @functools.cache
    def run_cases(program, np):
        seed = os.environ.get("MULTIVERSO_TEST_SEED", str(semantics.SEED))
        before = received_bytes(two_hosts.namespaces.values())
        result = run(two_hosts, program, np=np, MULTIVERSO_TEST_SEED=seed)
        return result, received_bytes(two_hosts.namespaces.values(), since=before)

    return run_cases


#: Programs with cases, and numbers of ranks.
JOBS = [("semantics.py", 4), ("consistency.py", 3)]


@pytest.mark.parametrize(("program", "np"), JOBS)
def test_ranks_share_memory_on_a_host_and_send_messages_between_hosts(cases, program, np):
    result, byte_counts = cases(program, np)
    per_host = -(-np // 2)
    for rank, report in result.check().reports.items():
        assert report["num_nodes"] == 2
        assert report["node"] == rank // per_host
    assert min(byte_counts) > 10**6, byte_counts


@pytest.mark.parametrize(("program", "np"), JOBS)
def test_cases_pass_on_two_hosts(cases, program, np):
    result, _ = cases(program, np)
    for name in result.check().reports[0]["outcomes"]:
        result.check_case(name, np)


def test_deltas_for_the_other_host_cross_the_network(two_hosts):
    before = received_bytes(two_hosts.namespaces.values())
    run(two_hosts, "nodes.py", "tables_are_freed", "3", np=2).check()
    for count in received_bytes(two_hosts.namespaces.values(), since=before):
        assert count > 3 * 32 * 2**20  # half of each of three deltas of 64 MB


@pytest.mark.parametrize("name", ["killed, a host", "killed, a host in rounds"])
def test_only_rank_of_a_host_is_named_at_once_when_it_is_killed(two_hosts, name):
    if mpirun_vendor(find_mpirun())[0] == "Open MPI":
        pytest.skip("Open MPI itself ends a job over TCP when one of its connections breaks")
    options = {"np": 3, "mpirun": MPIRUN, **two_hosts.environ}
    with launch.Job("faults.py", name, "shielded", **options) as job:
        result, pid = job.finish().check_clean(), job.pid(2)
    (call,) = ROWS_OF_HOSTS[name].when
    for kind, message in result.errors(0, 1, name=call):
        assert kind == "PeerLostError", message
        assert f"rank 2 on host-2 (process {pid}) died (its connection with rank" in message


def test_unreachable_host_is_named_after_the_timeout(two_hosts):
    unreachable = two_hosts.addresses[1]
    options = {"np": 3, "mpirun": MPIRUN, **two_hosts.environ}
    with launch.Job("faults.py", "unreachable", "shielded", **options) as job:
        job.wait_for("ready")
        two_hosts.pull_cable(unreachable)
        try:
            job.announce("cut")
            job.wait_for("called")
        finally:
            two_hosts.plug_in_cable(unreachable)
        result = job.finish().check_clean()
    for kind, message in result.errors(0, 1, 2):
        assert kind == "PeerLostError", message
        assert "has sent no heartbeat for" in message
        assert re.search(r"with rows \d+ to \d+", message), message


def test_hosts_are_removed_if_the_block_raises():
    reason = hosts.why_unavailable()
    if reason:
        pytest.skip(reason)
    pair = hosts.Hosts(2)
    namespaces = list(pair.namespaces.values())

    def fail_inside():
        with pair:
            assert all(name in output_of("ip", "netns", "list") for name in namespaces)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert not any(name in output_of("ip", "netns", "list") for name in namespaces)
