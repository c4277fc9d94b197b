"""Lasagne networks on 1 to 4 ranks: the cases of programs/lasagne_params.py."""

import functools
import importlib.util

import lasagne_params
import pytest

import launch

pytestmark = pytest.mark.skipif(importlib.util.find_spec("lasagne") is None, reason="needs Lasagne")


@functools.cache
def job(np):
    return launch.run("lasagne_params.py", np=np)


@pytest.mark.parametrize("name", lasagne_params.CASES)
@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_case(np, name):
    job(np).check_case(name, np)


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_job_ends_well_and_leaves_nothing(np):
    job(np).check()
