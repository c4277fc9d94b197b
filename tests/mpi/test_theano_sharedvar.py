"""Shared variables on 1 to 4 ranks: the cases of programs/theano_sharedvar.py."""

import pytest
import theano_sharedvar
from requirements import THEANOS, is_installed

from case_jobs import CaseJobs, in_one_job, on_ranks

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed(THEANOS), reason="needs PyTensor, Aesara or Theano"),
]

TestSharedVariables = CaseJobs(theano_sharedvar, in_one_job(on_ranks(1, 3))).tests()
