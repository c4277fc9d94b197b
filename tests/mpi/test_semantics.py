"""Asynchronous tables on 1 to 4 ranks: the cases that programs/semantics.py runs, one test each."""

import functools
import os

import pytest
import semantics

import launch

#: What a job with some ranks runs in; the second has its segments in files.
ENVIRONMENTS = {"memory": {}, "files": {"MULTIVERSO_SEGMENTS": "file"}}


@functools.cache
def job(np, segments):
    seed = os.environ.get("MULTIVERSO_TEST_SEED", str(semantics.SEED))
    return launch.run("semantics.py", np=np, MULTIVERSO_TEST_SEED=seed, **ENVIRONMENTS[segments])


@pytest.mark.parametrize("name", semantics.CASES)
@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_case(np, name):
    job(np, "memory").check_case(name, np)


@pytest.mark.parametrize("name", semantics.CASES)
def test_case_with_segments_in_files(name):
    job(3, "files").check_case(name, 3)


@pytest.mark.parametrize(
    ("np", "segments"), [*((np, "memory") for np in (1, 2, 3, 4)), (3, "files")]
)
def test_job_ends_well_and_leaves_nothing(np, segments):
    job(np, segments).check()
