"""Ranks of process groups get errors that name the rank that has died or does not come."""

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


@pytest.mark.parametrize("how", TEXTS)
def test_calls_name_the_rank_that_they_miss(how):
    job = launch.run("torch_distributed_faults.py", how, np=3, survives=True, OMP_NUM_THREADS="1")
    result = job.check_clean()
    # An abort or a segmentation fault at the end of a rank has no other trace here.
    assert "Fatal Python error" not in result.output
    assert "terminate called" not in result.output
    for rank in (0, 1):
        report = result.reports[rank]
        assert report.get("ended"), result.output
        for name in CALLS[:1] if how == "late" else CALLS:
            kind, message = report[name]
            assert kind == "DistBackendError", (name, kind, message)
            assert all(text in message for text in TEXTS[how]), (name, message)
        for name in ("backward", "future"):  # PyTorch raises this for an error of a future.
            kind, message = report[name]
            assert kind == "RuntimeError", (name, kind, message)
            assert all(text in message for text in TEXTS[how]), (name, message)
