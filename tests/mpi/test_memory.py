"""A node stores a table once, when its pages are touched, until it is released."""

import launch


def test_ranks_of_a_node_share_one_copy_of_a_table():
    np = 4
    reports = launch.run("memory.py", np=np).check().reports
    total = {name: sum(reports[rank][name] for rank in range(np)) for name in reports[0]}
    size = reports[0]["bytes"]
    little = 8 * 2**20  # stripes, rounding to huge pages
    assert total["created"] <= little
    assert size - little <= total["touched"] <= size + little
    assert total["freed"] <= little
