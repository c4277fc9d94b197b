"""Calls in the background on several ranks: one test per case of programs/background.py."""

import background

from case_jobs import CaseJobs, on_nodes, on_ranks

TestTables = CaseJobs(background, on_ranks(1, 2, 4) | on_nodes((2, 1), (4, 2))).tests()
