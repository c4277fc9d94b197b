"""The bars: what Multiverso holds itself to, and whether this run reached it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comparisons import Case


@dataclass(frozen=True)
class Bar:
    """A ratio to be reached.

    Attributes
    ----------
    operation, size : str, int
        The case it is about; a size of 0 stands for the only one of its operation.
    reference : str
        The series it is measured against. "C threads" stands for as many as there are workers.
    ranks : int
        The number of workers it is about.
    speed : float
        How many times as fast as the reference Multiverso must be at least.
    """

    operation: str
    size: int
    reference: str
    ranks: int
    speed: float

    @property
    def text(self) -> str:
        """What is asked, in words."""
        who = "one worker" if self.ranks == 1 else f"{self.ranks} workers at once"
        what = f"{self.operation} of {self.size:,}" if self.size else self.operation
        return f"{what}, {who}, against {self.reference}"


@dataclass(frozen=True)
class Verdict:
    """A bar, the speed that was measured for it, and the bounds within which that is."""

    bar: Bar
    speed: float
    interval: tuple[float, float]

    @property
    def passed(self) -> bool:
        """Whether the bar was reached."""
        return self.speed >= self.bar.speed


BARS = (
    Bar("get", 10_000_000, "np.copyto", 1, 0.85),
    Bar("add", 10_000_000, "np.add", 1, 0.85),
    # At most four times the time of a bare memcpy, called from Python like the others.
    Bar("get", 1_000, "memcpy", 1, 0.25),
    Bar("add", 1_000, "memcpy", 1, 0.25),
    Bar("add_get", 1_000_000, "MPI Get_accumulate", 1, 1.0),
    Bar("get rows", 0, "np.take", 1, 0.7),
    Bar("add rows", 0, "indexed +=", 1, 0.7),
    Bar("get", 1_000_000, "4 C threads", 4, 0.8),
    Bar("add", 1_000_000, "4 C threads", 4, 0.8),
    Bar("get", 10_000_000, "4 C threads", 4, 0.8),
    Bar("add", 10_000_000, "4 C threads", 4, 0.8),
)


#: A round of sync mode and aggregate beside the allreduces of the same run.
SYNC_BARS = tuple(
    Bar(operation, size, reference, ranks, speed)
    for operation in ("round", "aggregate")
    for size, speed in ((1_000, 1.0), (1_000_000, 1.5))
    for reference in ("MPI Allreduce", "gloo allreduce")
    for ranks in (2, 4)
)

#: Training with Keras: at most 1.02 times the time of a step, two workers, and updates.
LEARN_BARS = (
    Bar("training step", 0, "plain Keras", 1, 1 / 1.02),
    Bar("training step", 0, "one worker", 2, 1.8),
    Bar("update", 1_000_000, "mpi_learn's protocol", 1, 5.0),
)


def judge(cases: list[Case], ranks: int, bars: tuple[Bar, ...] = BARS) -> list[Verdict]:
    """Return a verdict on every bar for this number of ranks that was measured.

    Parameters
    ----------
    cases : list of Case
        What was measured.
    ranks : int
        With how many workers.
    bars : tuple of Bar, optional
        Which bars.
    """
    verdicts = []
    for bar in bars:
        for case in cases:
            fits = case.operation == bar.operation and bar.size in (0, case.size)
            if not fits or bar.ranks != ranks:
                continue
            speed = case.speed_against(bar.reference)
            interval = case.interval_against(bar.reference)
            if speed is not None and interval is not None:
                verdicts.append(Verdict(bar, speed, interval))
    return verdicts
