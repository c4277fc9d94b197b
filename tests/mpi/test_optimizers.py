"""The updaters on one node and on several: the cases of programs/optimizers.py."""

import functools

import optimizers
import pytest

import launch

#: Ranks and ranks per node.
JOBS = [(1, 1), (2, 2), (3, 3), (4, 4), (2, 1), (3, 1), (3, 2), (4, 2)]


@functools.cache
def job(np, per_node):
    nodes = {} if np == per_node else {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    return launch.run("optimizers.py", np=np, **nodes)


@pytest.mark.parametrize("name", optimizers.CASES)
@pytest.mark.parametrize(("np", "per_node"), JOBS)
def test_case(np, per_node, name):
    result = job(np, per_node)
    outcomes = {rank: report.get("outcomes", {}) for rank, report in result.reports.items()}
    failed = [
        f"rank {rank} of {np}: {outcomes.get(rank, {}).get(name, 'did not come to it')}"
        for rank in range(np)
        if outcomes.get(rank, {}).get(name) != "ok"
    ]
    assert not failed, "\n".join([*failed, result.output])


@pytest.mark.parametrize(("np", "per_node"), JOBS)
def test_job_ends_well_and_leaves_nothing(np, per_node):
    job(np, per_node).check()
