"""Sync mode, bounded staleness and aggregate: the cases of programs/consistency.py."""

import functools

import consistency
import pytest

import launch

#: What a job runs in: its segments in memory or in files, or as if its ranks were on several nodes.
PLACES = {
    "memory": {},
    "files": {"MULTIVERSO_SEGMENTS": "file"},
    "nodes of 1": {"MULTIVERSO_RANKS_PER_NODE": "1"},
    "nodes of 2": {"MULTIVERSO_RANKS_PER_NODE": "2"},
}
JOBS = [
    *((np, "memory") for np in (1, 2, 3, 4)),
    (2, "files"),
    (2, "nodes of 1"),
    (4, "nodes of 1"),
    (3, "nodes of 2"),
    (4, "nodes of 2"),
]


@functools.cache
def job(np, place):
    return launch.run("consistency.py", np=np, **PLACES[place])


@pytest.mark.parametrize("name", consistency.CASES)
@pytest.mark.parametrize(("np", "place"), JOBS)
def test_case(np, place, name):
    job(np, place).check_case(name, np)


@pytest.mark.parametrize(("np", "place"), JOBS)
def test_job_ends_well_and_leaves_nothing(np, place):
    job(np, place).check()
