"""The updaters on one node and on several: the cases of programs/optimizers.py."""

import functools

import optimizers
import pytest

import launch

#: Ranks and ranks per node.
JOBS = [(1, 1), (2, 2), (3, 3), (4, 4), (2, 1), (3, 2), (4, 2)]


@functools.cache
def job(np, per_node):
    return launch.run("optimizers.py", np=np, **launch.on_nodes(np, per_node))


@pytest.mark.parametrize("name", optimizers.CASES)
@pytest.mark.parametrize(("np", "per_node"), JOBS)
def test_case(np, per_node, name):
    job(np, per_node).check_case(name, np)


@pytest.mark.parametrize(("np", "per_node"), JOBS)
def test_job_ends_well_and_leaves_nothing(np, per_node):
    job(np, per_node).check()
