"""Shared variables on 1 to 4 ranks: the cases of programs/theano_sharedvar.py."""

import importlib.util

import pytest
import theano_sharedvar

from case_jobs import CaseJobs, in_one_job, on_ranks

BACKENDS = ("pytensor", "aesara", "theano")

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        not any(map(importlib.util.find_spec, BACKENDS)), reason="needs PyTensor, Aesara or Theano"
    ),
]

TestSharedVariables = CaseJobs(theano_sharedvar, in_one_job(on_ranks(1, 2, 3, 4))).tests()
