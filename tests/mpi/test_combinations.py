"""All ranks get the sentence of a combination that is refused when ranks or nodes are known.

tests/unit/test_supported.py has the combinations that one rank can try.
"""

import pytest

import launch
from combinations import OF_SEVERAL_RANKS, is_possible
from multiverso._native.supported import refusals


@pytest.mark.parametrize(
    ("np", "per_node"),
    [
        pytest.param(2, 2, marks=pytest.mark.one_mpi),
        (2, 1),
        pytest.param(4, 2, marks=pytest.mark.one_mpi),
    ],
)
def test_all_ranks_get_the_sentence_of_each_refusal(np, per_node):
    layout = "nodes" if per_node < np else "ranks"
    result = launch.run("combining.py", layout, np=np, **launch.on_nodes(np, per_node)).check()
    expected = [
        number
        for number, refusal in enumerate(refusals(), 1)
        if refusal.features & OF_SEVERAL_RANKS
        and ("several nodes" in refusal.features) == (layout == "nodes")
        and is_possible(refusal.features)
    ]
    assert len(expected) > 2
    for rank in range(np):
        assert result.reports[rank]["tried"] == expected


@pytest.mark.parametrize(
    ("roles", "is_refused"), [(("all", "worker"), False), (("all", "server"), True)]
)
def test_ranks_of_different_roles_agree_whether_a_call_is_refused(roles, is_refused):
    result = launch.run("combining.py", *roles, np=2).check()
    first, second = (result.reports[rank] for rank in range(2))
    assert first["features"] == second["features"]
    for report in (first, second):
        error = report["publish"]
        assert (error is not None and "only servers" in str(error)) == is_refused
