"""The ranks of a node share one copy of a table, which takes memory from its use to its release."""

import pytest

import launch


@pytest.mark.one_mpi
def test_ranks_of_a_node_share_one_copy_of_a_table():
    np = 4
    reports = launch.run("memory.py", np=np).check().reports
    total = {name: sum(reports[rank][name] for rank in range(np)) for name in reports[0]}
    size = reports[0]["bytes"]
    tolerance = 8 * 2**20  # for locks, and for rounding to huge pages
    assert total["created"] <= tolerance
    assert size - tolerance <= total["touched"] <= size + tolerance
    assert total["freed"] <= tolerance
