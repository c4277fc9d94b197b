"""Sync mode, bounded staleness and aggregate: one test per case of programs/consistency.py."""

import consistency

from case_jobs import CaseJobs, on_nodes, on_ranks
from configurations import jobs

JOBS = {
    **on_ranks(1, 2, 4),
    **jobs("files", "elastic", "continues"),
    **on_nodes((4, 1), (3, 2), (4, 2)),
}

TestModes = CaseJobs(consistency, JOBS).tests()
