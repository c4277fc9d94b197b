"""Ranks that make different calls in sync mode, or with bounded staleness, get a MismatchError."""

import functools

import pytest
from disagreements import PROGRAMS

import launch

#: Ranks, and ranks per node: on one node, whose ranks compare their calls without MPI, on two nodes
#: and on three.
LAYOUTS = [pytest.param(3, 3, marks=pytest.mark.one_mpi), (4, 2), (3, 1)]


@functools.cache
def result_of_all_programs(np, per_node):
    return launch.run("disagreements.py", np=np, **launch.on_nodes(np, per_node))


@pytest.mark.parametrize(("np", "per_node"), LAYOUTS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
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


@pytest.mark.parametrize(("np", "per_node"), LAYOUTS)
def test_failed_sessions_leave_nothing_behind(np, per_node):
    result_of_all_programs(np, per_node).check()
