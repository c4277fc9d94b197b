"""Candidates, and the samples that are taken of them in turns."""

from __future__ import annotations

import statistics
import time
import timeit
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ranks import Span

if TYPE_CHECKING:
    from ranks import Ranks


class Candidate(Protocol):
    """Something that does an operation and can be timed doing it."""

    name: str
    statement: str
    workers: int

    def run(self, calls: int) -> Span | None:
        """Do the operation `calls` times on each of its workers. All ranks call it."""


class Statement:
    """A Python statement that every rank executes.

    It is compiled into the timing loop, so that no function call of the benchmark's own comes on
    top of what is measured.

    Parameters
    ----------
    name : str
        Who does the operation.
    statement : str
        One line of Python.
    workers : int
        How many ranks execute it at once.
    **names : object
        What the statement refers to.
    """

    def __init__(self, name: str, statement: str, workers: int, **names: Any) -> None:
        self.name = name
        self.statement = statement
        self.workers = workers
        self._timer = timeit.Timer(statement, globals=names, timer=time.perf_counter)

    def run(self, calls: int) -> Span:
        """Execute the statement `calls` times and return when that was."""
        seconds = self._timer.timeit(calls)
        end = time.perf_counter()
        return Span(end - seconds, end)


@dataclass
class Series:
    """The samples of one candidate.

    A sample is the time of one operation: the wall-clock time of `calls` operations by each of
    `workers` workers at once, divided by `calls`.
    """

    name: str
    statement: str
    workers: int
    calls: int
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds of one operation as a worker sees it."""
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        """The 99th percentile of the samples, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]

    @property
    def least(self) -> float:
        """The shortest sample, in seconds: the one that other programs disturbed least."""
        return min(self.seconds)

    def rate(self, sample: int) -> float:
        """Operations per second of all workers together in the given sample."""
        return self.workers / self.seconds[sample]

    def speed_against(self, reference: Series) -> float:
        """Return how many times as fast as the reference this is.

        The median over the rounds of the ratio of two samples of the same round, because the
        machine's own speed drifts from one second to the next and both samples share it.
        """
        return statistics.median(self._ratios(reference))

    def interval_against(self, reference: Series) -> tuple[float, float]:
        """Return within which bounds that median is, with about 95 % confidence.

        Two of the sorted ratios, by the sign test, which supposes nothing of how they are spread
        (Conover, Practical Nonparametric Statistics, section 3.2).
        """
        ratios = sorted(self._ratios(reference))
        skipped = max(0, int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))
        return ratios[skipped], ratios[-1 - skipped]

    def _ratios(self, reference: Series) -> list[float]:
        pairs = range(min(len(self.seconds), len(reference.seconds)))
        return [self.rate(i) / reference.rate(i) for i in pairs]

    def speed_at_best(self, reference: Series) -> float:
        """Return how many times as fast as the reference this is, by the shortest samples of both.

        On a machine that others use too, where one that waits for a core decides the median.
        """
        return (self.workers / self.least) / (reference.workers / reference.least)


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes
    ----------
    sample_seconds : float
        What one sample should last at least, so that the timer and the start do not count.
    case_seconds : float
        What all samples of one case may take together.
    min_rounds, max_rounds : int
        Bounds on the number of samples of each candidate.
    """

    sample_seconds: float
    case_seconds: float
    min_rounds: int
    max_rounds: int

    @classmethod
    def for_ranks(cls, num_ranks: int, quick: bool) -> Effort:
        """Return the effort for a run with that many ranks, or for a quick look at it."""
        # Several ranks start within some ten microseconds of each other, and share cores perhaps,
        # so that a sample has to be much longer than a time slice of the scheduler.
        sample = 5e-4 if num_ranks == 1 else 3e-2
        if quick:
            return cls(sample, case_seconds=0.6, min_rounds=7, max_rounds=51)
        return cls(sample, case_seconds=5.0, min_rounds=15, max_rounds=201)


def _calls_for(candidate: Candidate, ranks: Ranks, sample_seconds: float) -> tuple[int, float]:
    """Return how many calls make a sample long enough, and how long that sample took."""
    calls = 1
    ranks.time(lambda: candidate.run(1))
    while True:
        seconds = ranks.time(lambda calls=calls: candidate.run(calls))  # type: ignore[misc]
        if seconds >= sample_seconds:
            return calls, seconds
        # Twice as many, or at once about as many as needed where that can be told.
        factor = sample_seconds / seconds if seconds > 0.05 * sample_seconds else 10.0
        calls = max(2 * calls, int(calls * min(factor * 1.1, 10.0)))


def alternate(
    candidates: list[Candidate], ranks: Ranks, effort: Effort, *, warms: bool = True
) -> list[Series]:
    """Time all candidates in turns, in an order that rotates from round to round.

    Collective: all ranks call it with the same candidates.

    Parameters
    ----------
    candidates : list of Candidate
        The first one is the one to be compared.
    ranks : Ranks
        The processes of this run.
    effort : Effort
        How long to measure.
    warms : bool, optional
        Whether a call that is not timed comes before each sample.

    Returns
    -------
    list of Series
        One per candidate, equal on all ranks.
    """
    series = []
    round_seconds = 0.0
    for candidate in candidates:
        calls, seconds = _calls_for(candidate, ranks, effort.sample_seconds)
        round_seconds += seconds * (1.0 + warms / calls)
        series.append(Series(candidate.name, candidate.statement, candidate.workers, calls))
    rounds = int(effort.case_seconds / round_seconds)
    rounds = min(max(rounds, effort.min_rounds), effort.max_rounds)
    for turn in range(rounds):
        for offset in range(len(candidates)):
            index = (turn + offset) % len(candidates)
            candidate, mine = candidates[index], series[index]
            # Each begins with its own memory in the caches, not with its predecessor's.
            if warms:
                candidate.run(1)
            calls = mine.calls
            seconds = ranks.time(lambda c=candidate, n=calls: c.run(n))  # type: ignore[misc]
            mine.seconds.append(seconds / calls)
    return series
