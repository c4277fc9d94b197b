"""A rank that dies in a collective call: all remaining ranks have the same outcome.

The test is generated over the calls, the failpoints and the hits of a failpoint in a call.
"""

import failpoints
import pytest

import launch

#: Before and after each exchange, for the first rank and for the last one, and in between.
FIRST_POINTS = ("group.begin/first", "group.complete/first")
POINTS = (*FIRST_POINTS, "group.begin/last", "group.complete/last")
#: In calls of many exchanges, the last rank dies before each of them, but not after, which is
#: nearly the same place as before the next one.
LONG_POINTS = (*FIRST_POINTS, "group.begin/last")
#: The failpoints of the calls, with those between the exchanges.
CALLS = {
    "barrier": POINTS,
    "create_table": (
        *LONG_POINTS,
        "table.made/first",
        "table.mapped/first",
        "table.filled/first",
    ),
    "create_hash_table": (*FIRST_POINTS, "table.mapped/last"),
    "get": POINTS,
    "aggregate": FIRST_POINTS,
    "aggregate_in_chunks": LONG_POINTS,
    "save": LONG_POINTS,
    "save_in_background": FIRST_POINTS,
    "load": LONG_POINTS,
    "publish": (
        *LONG_POINTS,
        "publish.chosen/first",
        "publish.copy/first",
        "publish.copy/last",
        "publish.complete/last",
    ),
}
#: One job can lose all but one of them.
RANKS = 8


def check_that_all_agree(call, points, np):
    """Run jobs in which ranks die at these failpoints, until all hits have been reached."""
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY), "MULTIVERSO_FAILPOINTS": "none"}
    position = "0.1"
    losses = 0
    while int(position.partition(".")[0]) < len(points):
        arguments = (call, " ".join(points), position)
        with launch.Job(
            "collective_losses.py", *arguments, np=np, survives=True, **variables
        ) as job:
            result = job.finish().check_clean()
        ended = [report for report in result.reports.values() if report.get("ended")]
        errors = {rank: report["error"] for rank, report in result.reports.items()
                  if "error" in report}  # fmt: skip
        assert ended, result.output
        assert not errors, f"{errors}\n{ended[0]['history'][-3:]}\n{result.output}"
        history = ended[0]["history"]
        assert all(report["history"] == history for report in ended), (
            f"{[report['history'] for report in ended]}\n{result.output}"
        )
        position = ended[0]["position"]
        losses += np - len(ended)
    # Ranks have died at all failpoints, or at all but one that the victim may not reach.
    assert losses >= len(points) - 1


@failpoints.needs_failpoints
@pytest.mark.one_mpi
@pytest.mark.parametrize("call", CALLS)
def test_all_remaining_ranks_agree_about_a_call_in_which_a_rank_died(call):
    check_that_all_agree(call, CALLS[call], RANKS)


@failpoints.needs_failpoints
@pytest.mark.one_mpi
def test_all_remaining_ranks_agree_about_a_shutdown_in_which_a_rank_died():
    check_that_all_agree("shutdown", POINTS, np=4)
