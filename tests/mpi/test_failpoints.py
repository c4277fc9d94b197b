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


def reports_of_survivors(function, *kills, victims=(0,), np=4, per_node=2):
    """Run a function of losses.py in which each victim dies at its failpoint, on two nodes."""
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY), **launch.on_nodes(np, per_node)}
    arguments = (function, *(f"{kill}=kill" for kill in kills))
    with launch.Job("losses.py", *arguments, np=np, survives=True, **variables) as job:
        result = job.finish().check_clean()
    reports = [result.reports.get(rank, {}) for rank in range(np) if rank not in victims]
    assert all(report.get("ended") for report in reports), result.output
    assert [report["lost"] for report in reports] == [list(victims)] * len(reports)
    return reports


@failpoints.needs_failpoints
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_shutdown_does_not_wait_for_a_leader_that_dies_in_it(mode):
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY), **launch.on_nodes(3, 1)}
    with launch.Job("losses.py", "closes", mode, np=3, survives=True, **variables) as job:
        result = job.finish().check_clean()
    assert sorted(result.reports) == [0, 2], result.output
    for report in result.reports.values():
        assert report == {"waited_to_the_end": False}, result.output


#: Where servers die: before, in and after a step. With two, the one that continues dies, too.
DEATHS = [
    "shard.changed@5",
    "shard.write_row@150",
    "shard.wrote@3 shard.changed@1",
]
MORE_DEATHS = [
    "shard.write@3",
    "shard.changed@8",
    "shard.wrote@4",
    "shard.wrote@9",
    "shard.write_row@20",
    "shard.write_row@300",
    "service.reply@14",
    "shard.write@3 shard.write@2",
    "shard.write@3 shard.wrote@1",
]


@failpoints.needs_failpoints
@pytest.mark.parametrize(
    "kills",
    [
        *DEATHS,
        *(pytest.param(k, marks=[pytest.mark.slow, pytest.mark.one_mpi]) for k in MORE_DEATHS),
    ],
)
@launch.again_where_mpi_is_stuck
def test_changes_are_made_once_though_their_servers_die_in_them(kills):
    kills = kills.split()
    options = {"victims": tuple(range(len(kills))), "np": 5, "per_node": 3}
    for report in reports_of_survivors("changes_with_dying_servers", *kills, **options):
        assert report["are_equal"] == [True] * 8


@failpoints.needs_failpoints
@pytest.mark.parametrize("number", [50, 350, 351])
@launch.again_where_mpi_is_stuck
def test_element_is_changed_once_though_its_server_dies_before_it_answers(number):
    reports = reports_of_survivors("counts_with_a_dying_server", f"service.reply@{number}")
    assert sorted(value for report in reports for value in report["seen"]) == list(range(300))
    assert [report["values"] for report in reports] == [[300, 300]] * 3


@failpoints.needs_failpoints
@launch.again_where_mpi_is_stuck
def test_a_creation_names_the_rank_that_died_before_the_others_had_opened_its_memory():
    for report in reports_of_survivors("creates_with_a_dying_maker", "group.begun@3"):
        kind, message = report["error"]
        assert kind == "PeerLostError", message
        assert "rank 0" in message
        assert report["sum"] == 2000


@failpoints.needs_failpoints
@pytest.mark.parametrize("number", [1, 4, 9])
@launch.again_where_mpi_is_stuck
def test_aggregates_continue_though_a_leader_dies_while_it_sends_a_piece(number):
    reports = reports_of_survivors(
        "aggregates_with_a_dying_leader", f"piece.sent@{number}", victims=(2,)
    )
    assert [report["sums"] for report in reports] == [[[3, 3]] * 3] * 3


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
