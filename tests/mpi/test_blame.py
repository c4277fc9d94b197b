"""Errors about another rank name that rank, its host, its last call and the last checkpoint."""

import pytest

import launch

pytestmark = pytest.mark.slow

KINDS = {"lost": "PeerLostError", "late": "OperationTimeout", "aborts": "AbortedError"}

NP = 3
LAST = NP - 1


@pytest.mark.parametrize(
    ("how", "call", "per_node"),
    [
        *(
            pytest.param(how, call, NP, marks=pytest.mark.one_mpi)
            for how in KINDS
            for call in ("add_get", "barrier")
        ),
        ("late", "add_get", 2),
        ("aborts", "barrier", 2),
    ],
)
def test_error_describes_the_failed_rank(how, call, per_node, tmp_path):
    nodes = launch.on_nodes(NP, per_node)
    result = launch.run("blame.py", how, call, str(tmp_path), np=NP, **nodes).check_clean()
    for rank in range(LAST):
        report = result.reports[rank]
        kind, message = report.get("error") or ("none", result.output)
        assert kind == KINDS[how], message
        attributes = report["error_about"]
        assert attributes["rank"] == LAST, message
        assert f"rank {LAST}" in message
        assert attributes["host"].startswith(report["host"]), attributes
        assert report["host"] in message
        assert attributes["table"] == ("weights" if call == "add_get" else None)
        assert attributes["last_checkpoint"].startswith(str(tmp_path))
        assert attributes["last_checkpoint"] in message
        assert attributes["silent_for"] is None or attributes["silent_for"] > 0
        if per_node == NP:
            # The age of the call depends on when the error is formatted.
            last_call = attributes["last_call"].split(",")[0]
            assert last_call.startswith(call if how == "aborts" else "barrier")
            assert last_call in message
        else:  # the last call of a rank on another node is unknown here
            assert attributes["last_call"] is None
