"""Pinned versions, on ranks and nodes whose readers pin different ones, and after a lost rank."""

import pinning
import pytest
from requirements import needs_found_sessions

import launch
from case_jobs import CaseJobs, on_nodes, on_ranks

pytestmark = [needs_found_sessions, pytest.mark.one_mpi]

TestPinning = CaseJobs(pinning, on_ranks(1, 2, 3) | on_nodes((2, 1), (3, 2))).tests()


@launch.again_where_mpi_is_stuck
def test_ranks_that_continue_publish_and_pin_when_a_reader_among_them_was_killed():
    with launch.Job("pinning.py", "loses_a_reader", np=3, survives=True) as job:
        reports = job.finish().check_clean().reports
    assert [reports[rank].get("ended") for rank in (1, 2)] == [True, True], reports
    assert "pinned 2 other versions" in reports[2]["refused"]
    # Rank 1 keeps version 2, and the pin of rank 0 has ended with it.
    assert [reports[rank]["pinned"] for rank in (1, 2)] == [[2], [4]]
