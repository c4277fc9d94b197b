"""Ranks wait for a rank that is late, and say for which one, in which call, and how long yet."""

import re
import time

import failpoints
import pytest

import launch

#: A wait for the adds of a round, here or on the node with the rows.
_ROUND = (
    "in get(, round 0 of table .*, for rank 0, which did not join it"
    "| of table .* for ranks? 0.* to answer, once all workers have made 1 adds)"
)

#: The calls of `programs/late.py`, with what a line says about the call and about its limit.
CALLS = {
    "barrier": ("in barrier for rank 0, which did not call it", "without a limit"),
    "shutdown": ("in shutdown for rank 0, which did not call it", "for up to 60 s"),
    "aggregate": ("in aggregate for rank 0, which did not call it", "without a limit"),
    "get": (_ROUND, "for up to 60 s"),
    "result": (_ROUND, "without a limit"),
}


@failpoints.needs_failpoints
@pytest.mark.parametrize("per_node", [3, 2, 1])
def test_line_names_the_late_rank_its_last_call_and_the_option_for_each_call(per_node):
    environ = {**launch.on_nodes(3, per_node), **failpoints.environment("none")}
    with launch.Job("late.py", np=3, **environ) as job:
        for name, (call, limit) in CALLS.items():
            # Over nodes, a rank knows the last call of a rank elsewhere only in collective calls.
            last = "last call: barrier, .*; last heard of" if call != _ROUND else ""
            line = rf"rank [12] has waited .* s {call} \(on .*{last}.*\); it waits {limit}, which "
            pattern = re.compile(line + "timeout= of init sets")
            while not pattern.search(job.printed()) and time.monotonic() < job.deadline:
                time.sleep(0.05)
            lines = [found for found in job.printed().splitlines() if pattern.search(found)]
            # The ranks of a node say it once.
            assert 1 <= len(lines) <= (3 + per_node - 1) // per_node, job.printed()
            job.announce(name)
        job.finish().check()
