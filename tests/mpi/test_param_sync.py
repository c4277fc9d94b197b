"""ParamSync on one node and on several: the cases of programs/array_params.py."""

import functools

import array_params
import pytest

import launch

#: Ranks and ranks per node.
JOBS = [(1, 1), (2, 2), (3, 3), (4, 4), (2, 1), (4, 2)]


@functools.cache
def job(np, per_node):
    return launch.run("array_params.py", np=np, **launch.on_nodes(np, per_node))


@pytest.mark.parametrize("name", array_params.CASES)
@pytest.mark.parametrize(("np", "per_node"), JOBS)
def test_case(np, per_node, name):
    job(np, per_node).check_case(name, np)


@pytest.mark.parametrize(("np", "per_node"), JOBS)
def test_job_ends_well_and_leaves_nothing(np, per_node):
    job(np, per_node).check()
