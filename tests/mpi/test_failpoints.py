"""A rank that a failpoint kills in the middle of a call, where a signal would rarely hit it."""

import failpoints
import pytest

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


@failpoints.needs_failpoints
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_shutdown_does_not_wait_for_a_leader_that_dies_in_it(mode):
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY), **launch.on_nodes(3, 1)}
    with launch.Job("losses.py", "closes", mode, np=3, survives=True, **variables) as job:
        result = job.finish().check_clean()
    assert sorted(result.reports) == [0, 2], result.output
    for report in result.reports.values():
        assert report == {"waited_to_the_end": False}, result.output


@failpoints.needs_failpoints
def test_a_creation_names_the_rank_that_died_before_the_others_had_opened_its_memory():
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY)}
    arguments = ("creates_with_a_dying_maker", "group.begun@3=kill")
    with launch.Job("losses.py", *arguments, np=3, survives=True, **variables) as job:
        result = job.finish().check_clean()
    for rank in (1, 2):
        report = result.reports.get(rank, {})
        assert report.get("ended"), result.output
        assert report["lost"] == [0]
        kind, message = report["error"]
        assert kind == "PeerLostError", message
        assert "rank 0" in message
        assert report["sum"] == 2000


@failpoints.needs_failpoints
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize(
    "place", ["group.begun@3", "exchange.received@3", "exchange.sent@4", "group.exchanged@3"]
)
@launch.again_where_mpi_is_stuck
def test_small_aggregates_end_on_all_ranks_when_a_leader_dies_in_one(victim, place):
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY), **launch.on_nodes(4, 2)}
    arguments = ("small_aggregates_with_a_dying_leader", str(victim), f"{place}=kill")
    survivors = {0, 1, 2, 3} - {victim}
    with launch.Job("losses.py", *arguments, np=4, survives=True, **variables) as job:
        for rank in survivors:
            job.wait_for_report(rank)
        job.announce("end")
        result = job.finish().check_clean()
    for rank in survivors:
        kind, message = result.reports[rank]["error"]
        assert kind == "PeerLostError", message
        assert f"rank {victim}" in message, message
        # The array has the sum or is as before.
        assert result.reports[rank]["values"] in ([rank + 1.0], [10.0])
