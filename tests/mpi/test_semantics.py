"""Asynchronous tables on 1 to 4 ranks: one test per case of programs/semantics.py."""

import semantics

from case_jobs import CaseJobs, on_ranks
from configurations import jobs

JOBS = {
    **on_ranks(1, 2, 4),
    **jobs("files", "elastic", "continues", "without_mpi"),
}

TestTables = CaseJobs(semantics, JOBS).tests()
