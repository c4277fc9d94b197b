"""Ranks that die at a point that no signal can target."""

import failpoints

import launch

#: Each add of the program passes 13 stripes; this one is in the second add.
IN_THE_MIDDLE = "shard.write@16=kill"


@failpoints.needs_failpoints
def test_lock_of_a_rank_that_died_in_an_add_is_recovered():
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY)}
    result = launch.run("dying.py", "dies_in_an_add", IN_THE_MIDDLE, np=3, **variables)
    result.check_clean()
    for rank in range(2):
        report = result.reports[rank]
        assert report["small"] == [5], result.output  # each acknowledged add, once
        assert report["partly"] == [0, 1]
        assert 0 < report["thousands"] < 100_000
    assert "a rank died in the middle of an operation" in result.output
