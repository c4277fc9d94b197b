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

#: What they say of it if it is the only rank of its host.
TEXTS_OF_HOST = {
    "kill": ("PeerLostError", "rank 2, on the host of the ranks [2], is lost"),
    "exception": ("PeerLostError", "rank 2, on the host of the ranks [2], left (its program ended"),
    "destroy": ("PeerLostError", "left (its process group was destroyed)"),
    "late": ("waited 10.8 s for rank 2, on the host of the ranks [2]",),
}

#: What they say of it if its host has another rank, which tells the other host.
TEXTS_OF_RANK_OF_HOST = {
    "kill": ("PeerLostError", "rank 3 of the group", "(process ", "died"),
    "destroy": ("PeerLostError", "rank 3 of the group", "(its process group was destroyed)"),
}


def chosen(texts):
    """Return the ways to end, of which `make test-all` runs the first and the last."""
    first, *others, last = texts
    return [first, *(pytest.param(how, marks=pytest.mark.release) for how in others), last]


@pytest.mark.parametrize("how", chosen(TEXTS))
def test_calls_name_the_rank_that_they_miss(how):
    check(how, TEXTS[how], np=3, per_host=3)


@pytest.mark.parametrize("how", chosen(TEXTS_OF_HOST))
def test_calls_name_the_rank_of_another_host(how):
    check(how, TEXTS_OF_HOST[how], np=3, per_host=2)


@pytest.mark.parametrize("how", TEXTS_OF_RANK_OF_HOST)
def test_calls_name_a_rank_of_another_host_that_goes_on(how):
    check(how, TEXTS_OF_RANK_OF_HOST[how], np=4, per_host=2)


def check(how, texts, np, per_host):
    """Run a job whose last rank ends, and check what the other ranks report."""
    job = launch.run(
        "torch_distributed_faults.py",
        how,
        np=np,
        survives=True,
        OMP_NUM_THREADS="1",
        **launch.on_nodes(np, per_host),
    )
    result = job.check_clean()
    # An abort or a segmentation fault at the end of a rank has no other trace here.
    assert "Fatal Python error" not in result.output
    assert "terminate called" not in result.output
    for rank in range(np - 1):
        report = result.reports[rank]
        assert report.get("ended"), result.output
        for name in CALLS[:1] if how == "late" else CALLS:
            kind, message = report[name]
            assert kind == "DistBackendError", (name, kind, message)
            assert all(text in message for text in texts), (name, message)
        for name in ("backward", "future"):  # PyTorch raises this for an error of a future.
            kind, message = report[name]
            assert kind == "RuntimeError", (name, kind, message)
            assert all(text in message for text in texts), (name, message)
