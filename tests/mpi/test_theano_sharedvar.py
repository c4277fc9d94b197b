"""Shared variables on 1 to 4 ranks: the cases of programs/theano_sharedvar.py."""

import functools
import importlib.util

import pytest
import theano_sharedvar

import launch

BACKENDS = ("pytensor", "aesara", "theano")

pytestmark = pytest.mark.skipif(
    not any(map(importlib.util.find_spec, BACKENDS)), reason="needs PyTensor, Aesara or Theano"
)


@functools.cache
def job(np):
    return launch.run("theano_sharedvar.py", np=np)


@pytest.mark.parametrize("name", theano_sharedvar.CASES)
@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_case(np, name):
    job(np).check_case(name, np)


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_job_ends_well_and_leaves_nothing(np):
    job(np).check()
