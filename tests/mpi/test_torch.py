"""Modules of PyTorch on 1 to 4 ranks: the cases of programs/torch_params.py."""

import functools
import importlib.util

import pytest
import torch_params

import launch

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")


@functools.cache
def job(np):
    return launch.run("torch_params.py", np=np, OMP_NUM_THREADS="1")


@pytest.mark.parametrize("name", torch_params.CASES)
@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_case(np, name):
    job(np).check_case(name, np)


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_job_ends_well_and_leaves_nothing(np):
    job(np).check()
