"""A rank that a failpoint kills in the middle of an add, where a signal would rarely hit it."""

import failpoints

import launch

#: Each add of the program writes 13 stripes, so the rank dies in the third one of its second add.
IN_SECOND_ADD = "shard.write@16=kill"


@failpoints.needs_failpoints
def test_lock_of_a_rank_that_died_in_an_add_is_recovered():
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY)}
    result = launch.run("dying.py", IN_SECOND_ADD, np=3, **variables)
    result.check_clean()
    for rank in range(2):
        report = result.reports[rank]
        assert report["ones"] == [5], result.output  # 3 first adds and 2 later ones, each once
        assert report["thousands"] == [0, 1]
        assert 0 < report["elements_with_a_thousand"] < 100_000
    assert "a rank died in the middle of an operation" in result.output
