"""A rank that dies in a collective call on two nodes: all remaining ranks have the same outcome.

The test is generated over the calls, the failpoints and the hits of a failpoint in a call.
"""

import collective_losses
import failpoints
import pytest

import launch

#: Before and after each exchange, for the leader of a node and for another rank, and in between.
POINTS = (
    "group.begin/leader",
    "group.begin/last",
    "exchange.sent/leader",
    "group.complete/leader",
    "group.complete/last",
)
#: Failpoints between the exchanges.
POINTS_OF = {
    "create_table": ("table.made/leader", "table.mapped/leader", "table.filled/leader"),
    "create_hash_table": ("table.mapped/last",),
    "aggregate_in_chunks": ("piece.sent/leader",),
    "publish": ("publish.copy/leader", "publish.copy/last", "publish.complete/last"),
}
#: Further places within an exchange.
MORE_POINTS = ("group.begun/leader", "group.begun/last", "exchange.received/leader",
               "group.exchanged/leader")  # fmt: skip
RANKS = 16


def check_that_all_agree(call, points, np):
    """Run jobs in which ranks die at these failpoints, until all hits have been reached."""
    variables = {
        "MULTIVERSO_LIBRARY": str(failpoints.LIBRARY),
        "MULTIVERSO_FAILPOINTS": "none",
        **launch.on_nodes(np, np // 2),
    }
    position = "0.1"
    kills = 0
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
        kills += len(history) - 1
    return kills


@failpoints.needs_failpoints
@pytest.mark.one_mpi
@pytest.mark.parametrize("call", collective_losses.CALLS)
@launch.again_where_mpi_is_stuck
def test_all_remaining_ranks_agree_about_a_call_in_which_a_rank_died(call):
    check_that_all_agree(call, POINTS + POINTS_OF.get(call, ()), RANKS)
