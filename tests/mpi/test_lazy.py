"""Lazy rows on one node and on several: the cases of programs/lazy.py."""

import lazy

from case_jobs import CaseJobs, on_nodes, on_ranks

JOBS = {
    **on_ranks(1, 2, 3, 4),
    **on_nodes((3, 2), (4, 2)),
    "2_ranks_with_files": {"np": 2, "MULTIVERSO_SEGMENTS": "file"},
}

TestLazyRows = CaseJobs(lazy, JOBS).tests()
