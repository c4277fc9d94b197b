"""A table larger than the memory takes memory only for the rows that are changed."""

import pytest

import launch

pytestmark = pytest.mark.slow

MIB = 2**20
ROW_BYTES = 64 * 4
#: A changed row takes at most a page each of parameters, state, locks, and two kinds of bits, which
#: tell whether the row has been changed at all, and since the last save.
PAGE_BYTES = 5 * 4096


@pytest.mark.parametrize(
    ("np", "per_node"),
    [
        pytest.param(1, None, marks=pytest.mark.one_mpi),
        pytest.param(2, None, marks=pytest.mark.one_mpi),
        (4, 2),
    ],
)
def test_table_larger_than_the_memory_is_created_read_changed_and_saved(np, per_node):
    nodes = {} if per_node is None else launch.on_nodes(np, per_node)
    reports = launch.run("huge_table.py", np=np, **nodes).check().reports
    total = {name: sum(reports[rank][name] for rank in range(np)) for name in reports[0]}
    assert total["created"] < 8 * np * MIB
    # Readers look at a bit for each row, in 36 MiB of shared memory.
    assert total["read"] < (40 + 8 * np) * MIB
    rows = reports[0]["rows"]
    assert rows * 2 * ROW_BYTES < total["used"]
    assert total["used"] < rows * PAGE_BYTES + 8 * np * MIB
    if np == 1:
        assert total["saved"] < rows * 2 * ROW_BYTES + MIB
