"""Asynchronous tables on 1 to 4 ranks: one test per case of programs/semantics.py."""

import semantics

from case_jobs import CaseJobs, on_ranks

JOBS = {
    **on_ranks(1, 2, 4),
    "3_ranks_with_files": {"np": 3, "MULTIVERSO_SEGMENTS": "file"},
}

TestTables = CaseJobs(semantics, JOBS).tests()
