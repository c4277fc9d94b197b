"""Ranks that make different calls in sync mode, or with bounded staleness, get a MismatchError."""

import functools

import pytest
from disagreements import PROGRAMS

import launch

#: Ranks, and ranks per node: all ranks on one node, on two nodes, and on three.
LAYOUTS = [(2, 2), (3, 3), (4, 4), (2, 1), (3, 1), (4, 2)]


def marks_of(np, per_node):
    """Return the marks of a layout: ranks on one node compare their calls without MPI."""
    return [pytest.mark.one_mpi] if np == per_node else []


@functools.cache
def result_of_all_programs(np, per_node):
    return launch.run("disagreements.py", np=np, **launch.on_nodes(np, per_node))


# Of two ranks, one is a server, so the other has no worker to disagree with.
@pytest.mark.parametrize(
    ("np", "per_node", "program"),
    [
        pytest.param(
            *(np, per_node, program),
            id=f"{np} ranks, {per_node} per node: {program.name}",
            marks=marks_of(np, per_node),
        )
        for np, per_node in LAYOUTS
        for program in PROGRAMS.values()
        if np > 2 or not program.server
    ],
)
def test_different_calls_raise_mismatch_on_every_rank(np, per_node, program):
    result = result_of_all_programs(np, per_node)
    for rank in range(int(program.server), np):
        outcomes = result.reports.get(rank, {}).get("outcomes", {})
        assert program.name in outcomes, f"rank {rank} did not run it:\n{result.output}"
        outcome = outcomes[program.name]
        if not program.texts:
            assert outcome is None
            continue
        kind, message, call = outcome
        assert kind == "MismatchError", f"rank {rank}, {call}: {message}"
        for text in program.texts:
            assert text in message
        assert message.count("rank ") >= 2


@pytest.mark.parametrize(
    ("np", "per_node"), [pytest.param(*layout, marks=marks_of(*layout)) for layout in LAYOUTS]
)
def test_failed_sessions_leave_nothing_behind(np, per_node):
    result_of_all_programs(np, per_node).check()
