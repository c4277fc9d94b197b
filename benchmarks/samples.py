"""Times implementations of an operation (candidates) in samples that alternate between them."""

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
    """An implementation of an operation; `statement` describes it in reports."""

    name: str
    statement: str
    workers: int

    def run(self, calls: int) -> Span | None:
        """Do the operation `calls` times on each worker; return the span there. Collective."""


class Statement:
    """A Python statement that every rank executes.

    The statement is compiled into the timing loop, so the measurement adds no function call.

    Parameters
    ----------
    name : str
        Name of the implementation.
    statement : str
        One line of Python.
    workers : int
        Number of ranks that execute it at once.
    **names : object
        The names that the statement uses.
    """

    def __init__(self, name: str, statement: str, workers: int, **names: Any) -> None:
        self.name = name
        self.statement = statement
        self.workers = workers
        self._timer = timeit.Timer(statement, globals=names, timer=time.perf_counter)

    def run(self, calls: int) -> Span:
        """Execute the statement `calls` times and return the span."""
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
        """The shortest sample in seconds, which other programs disturbed least."""
        return min(self.seconds)

    def rate(self, sample: int) -> float:
        """Operations per second of all workers together in the given sample."""
        return self.workers / self.seconds[sample]

    def speed_against(self, reference: Series) -> float:
        """Return the speed relative to the reference.

        The speed is the median ratio of two samples of the same round, because the speed of the
        machine drifts and affects both samples of a round equally.
        """
        return statistics.median(self._ratios(reference))

    def interval_against(self, reference: Series) -> tuple[float, float]:
        """Return a confidence interval of about 95 % for `speed_against`.

        The bounds are two of the sorted ratios, by the sign test, which assumes no distribution
        (Conover, Practical Nonparametric Statistics, section 3.2).
        """
        ratios = sorted(self._ratios(reference))
        # 95 % are within 1.96 standard deviations of n / 2; one deviation is sqrt(n) / 2.
        skipped = max(0, int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))
        return ratios[skipped], ratios[-1 - skipped]

    def _ratios(self, reference: Series) -> list[float]:
        rounds = range(min(len(self.seconds), len(reference.seconds)))
        return [self.rate(sample) / reference.rate(sample) for sample in rounds]

    def speed_at_best(self, reference: Series) -> float:
        """Return the speed relative to the reference by the shortest samples of both.

        Use this speed on a busy machine, where waiting for a core dominates the median.
        """
        return (self.workers / self.least) / (reference.workers / reference.least)


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes
    ----------
    sample_seconds : float
        Shortest sample, so that the overhead of timing and starting is negligible.
    case_seconds : float
        Time for all samples of one case.
    min_rounds, max_rounds : int
        Bounds on the number of samples of each candidate.
    """

    sample_seconds: float
    case_seconds: float
    min_rounds: int
    max_rounds: int

    @classmethod
    def for_ranks(cls, num_ranks: int, quick: bool) -> Effort:
        """Return the effort for a run with `num_ranks` ranks, smaller if `quick`."""
        # Several ranks start within some ten microseconds of each other and may share cores, so a
        # sample must be much longer than a time slice of the scheduler.
        sample = 5e-4 if num_ranks == 1 else 3e-2
        if quick:
            return cls(sample, case_seconds=0.6, min_rounds=7, max_rounds=51)
        return cls(sample, case_seconds=5.0, min_rounds=15, max_rounds=201)


def _calls_for(candidate: Candidate, ranks: Ranks, sample_seconds: float) -> tuple[int, float]:
    """Return a number of calls that makes a sample long enough, and its seconds."""
    calls = 1
    ranks.time(lambda: candidate.run(1))  # touches memory and fills caches
    while True:
        seconds = ranks.time(lambda calls=calls: candidate.run(calls))  # type: ignore[misc]
        if seconds >= sample_seconds:
            return calls, seconds
        # Two to ten times the calls; a time below 5 % of the goal is too short to extrapolate.
        factor = sample_seconds / seconds if seconds > 0.05 * sample_seconds else 10.0
        calls = max(2 * calls, int(calls * min(factor * 1.1, 10.0)))


def alternate(
    candidates: list[Candidate], ranks: Ranks, effort: Effort, *, warms: bool = True
) -> list[Series]:
    """Time all candidates alternately, in an order that rotates from round to round.

    Collective: all ranks pass the same candidates.

    Parameters
    ----------
    candidates : list of Candidate
        The first is compared with the others.
    ranks : Ranks
        The processes of this run.
    effort : Effort
        How long to measure.
    warms : bool, optional
        Whether an untimed call precedes each sample.

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
    for round_number in range(rounds):
        for offset in range(len(candidates)):
            index = (round_number + offset) % len(candidates)
            candidate, calls = candidates[index], series[index].calls
            if warms:  # fills the caches with the memory of this candidate
                candidate.run(1)
            seconds = ranks.time(lambda c=candidate, n=calls: c.run(n))  # type: ignore[misc]
            series[index].seconds.append(seconds / calls)
    return series
