"""The speeds that Multiverso must reach (the bars), and the verdicts on a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comparisons import Case


@dataclass(frozen=True)
class Bar:
    """A required speed relative to a reference.

    The case is an operation and a size; a size of 0 means the only case of its operation. `ranks`
    is the number of workers, and `speed` the lowest accepted multiple of the reference's speed.
    """

    operation: str
    size: int
    reference: str
    ranks: int
    speed: float

    @property
    def text(self) -> str:
        """The case and the reference, in words."""
        workers = "one worker" if self.ranks == 1 else f"{self.ranks} workers at once"
        operation = f"{self.operation} of {self.size:,}" if self.size else self.operation
        return f"{operation}, {workers}, against {self.reference}"


@dataclass(frozen=True)
class Verdict:
    """A bar, the measured speed and its confidence interval."""

    bar: Bar
    speed: float
    interval: tuple[float, float]

    @property
    def passed(self) -> bool:
        """Whether the speed reaches the bar."""
        return self.speed >= self.bar.speed


BARS = (
    Bar("get", 10_000_000, "np.copyto", 1, 0.85),
    Bar("add", 10_000_000, "np.add", 1, 0.85),
    # A call may take four times as long as a memcpy that Python calls through ctypes.
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

#: A round of sync mode, and aggregate, against the allreduces of the same run.
SYNC_BARS = tuple(
    Bar(operation, size, reference, ranks, speed)
    for operation in ("round", "aggregate")
    for size, speed in ((1_000, 1.0), (1_000_000, 1.5))
    for reference in ("MPI Allreduce", "gloo allreduce")
    for ranks in (2, 4)
) + (
    Bar("zero-copy round", 1_000_000, "DeepSpeed allreduce", 2, 1.0),
    Bar("zero-copy round", 1_000_000, "MPI Allreduce", 4, 1.5),
)

#: Gets and training steps of random rows of 64 float32.
ROW_BARS = tuple(
    Bar(f"{operation} {ids}, {rows:,}", 0, reference, ranks, speed)
    for rows in (100_000, 1_000_000, 10_000_000)
    for ids in ("uniform", "zipf")
    for operation, reference, ranks, speed in (
        ("get", "np.take", 1, 0.9),
        *(
            ("step", f"{ranks} C thread{'s' if ranks > 1 else ''}", ranks, 0.7)
            for ranks in (1, 2, 4)
        ),
        ("step", "FBGEMM", 1, 1.3),
        ("step", "FBGEMM", 2, 1.3),
        ("step", "torch sparse Adagrad", 1, 8.0 if ids == "uniform" else 4.0),
        ("step", "racing writes", 2, 3.0 if ids == "uniform" else 2.0),
        ("get keys", "rows by number", 1, 0.6),
        ("fetch keys", "rows by number", 1, 0.4),
    )
)

#: Training with Keras: a step of one worker may take 2 % longer; steps of two workers; an update.
LEARN_BARS = (
    Bar("training step", 0, "plain Keras", 1, 1 / 1.02),
    Bar("training step", 0, "one worker", 2, 1.8),
    Bar("update", 1_000_000, "mpi_learn's protocol", 1, 5.0),
)


def judge(cases: list[Case], ranks: int, bars: tuple[Bar, ...] = BARS) -> list[Verdict]:
    """Return a verdict on each bar that applies to these cases, measured with `ranks` workers."""
    verdicts = []
    for bar in bars:
        for case in cases:
            is_its_case = case.operation == bar.operation and bar.size in (0, case.size)
            if not is_its_case or bar.ranks != ranks:
                continue
            speed = case.speed_against(bar.reference)
            interval = case.interval_against(bar.reference)
            if speed is not None and interval is not None:
                verdicts.append(Verdict(bar, speed, interval))
    return verdicts
