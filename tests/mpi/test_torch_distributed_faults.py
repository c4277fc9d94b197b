"""Ranks of process groups get errors that name the rank that has died or does not come."""

import failpoints
import pytest
from requirements import is_installed

import launch

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch"),
]

#: The calls that raise the error of backends.
CALLS = ("all_reduce", "background", "broadcast", "all_gather", "barrier")

#: What the errors say of the last rank, which ended in one of these ways.
TEXTS = {
    "kill": ("PeerLostError", "rank 2 (process ", "died"),
    "exception": ("PeerLostError", "rank 2 left (its program ended"),
    "exit": ("PeerLostError", "rank 2 left (its program ended"),
    "destroy": ("PeerLostError", "rank 2 left (its process group was destroyed)"),
    "late": ("for rank 2, which did not call it",),
}

#: With it, the deadline of 12 s passes after two.
FAST = failpoints.environment(factor=5)


#: `make test-all` runs the first and the last.
WAYS = [
    pytest.param(how, marks=[pytest.mark.release] * (how not in ("kill", "late"))) for how in TEXTS
]


def errors_of(how, **options):
    """Run a job of three ranks, of which the last ends; return the reports of the others."""
    result = launch.run(
        "torch_distributed_faults.py", how, np=3, survives=True, OMP_NUM_THREADS="1", **options
    ).check_clean()
    # An abort or a segmentation fault at the end of a rank has no other trace here.
    assert "Fatal Python error" not in result.output
    assert "terminate called" not in result.output
    reports = [result.reports[rank] for rank in range(2)]
    assert all(report.get("ended") for report in reports), result.output
    return reports


@pytest.mark.parametrize("how", WAYS)
def test_calls_name_the_rank_that_they_miss(how):
    options = FAST if how == "late" and failpoints.LIBRARY.exists() else {}
    for report in errors_of(how, **options):
        for name in CALLS[:1] if how == "late" else CALLS:
            kind, message = report[name]
            assert kind == "DistBackendError", (name, kind, message)
            assert all(text in message for text in TEXTS[how]), (name, message)
        for name in ("backward", "future"):  # PyTorch raises this for an error of a future.
            kind, message = report[name]
            assert kind == "RuntimeError", (name, kind, message)
            assert all(text in message for text in TEXTS[how]), (name, message)


def test_calls_over_hosts_end_in_errors_of_gloo():
    for report in errors_of("kill", **launch.on_nodes(3, 2)):
        for name in (*CALLS, "backward", "future"):
            assert report[name] is not None, name
