"""Which of the ranks that failed did so by itself, and first; the others have lost that rank."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from multiverso._native.reports import RankState, first_own_failure


class Failure(NamedTuple):
    """The end of a rank with an exit code other than 0.

    Attributes
    ----------
    name : str
        What the rank is called in messages, such as "rank 1 (process 17)".
    code : int
        The exit code, or minus the number of the signal that ended the process.
    time : float
        When the rank began to fail, in seconds of the system's monotonic clock.
    rank : int or None
        The rank, if it is known.
    cause : int or None
        The rank that this one had lost before it failed, or None if it failed by itself.
    error : str
        The class of its error, or "".

    """

    name: str
    code: int
    time: float
    rank: int | None = None
    cause: int | None = None
    error: str = ""


def first_cause(failures: Sequence[Failure]) -> Failure:
    """Return the first failure of a rank that failed by itself, or of any if there is none."""
    own = [failure for failure in failures if failure.cause is None]
    return min(own or failures, key=lambda failure: failure.time)


def cause_of(failure: Failure, failures: Iterable[Failure]) -> Failure:
    """Return the failure from which one follows, step by step; itself if no other is known."""
    by_rank = {each.rank: each for each in failures}
    seen = {failure.rank}
    while failure.cause is not None and failure.cause not in seen and failure.cause in by_rank:
        failure = by_rank[failure.cause]
        seen.add(failure.rank)
    return failure


def consequences(reasons: Iterable[str]) -> str:
    """Return why other ranks have failed, such as "3 more: PeerLostError of rank 1", or ""."""
    counts = Counter(reasons).most_common()
    return "; ".join(f"{count} more: {reason}" for reason, count in counts)


def explain(states: Iterable[RankState], *, is_cause_known: bool) -> tuple[str, str]:
    """Return the traceback that the launcher has to print in full, and a line about all others.

    A rank that failed first by itself has printed its traceback itself, and the traceback of a rank
    that lost it says no more than the message, unless no rank is known that failed by itself.
    """
    states = list(states)
    failed = sorted(
        ((state.failure, state) for state in states if state.failure and state.failure.text),
        key=lambda each: each[0].order,
    )
    first = first_own_failure(states)
    shown = [state for failure, state in failed if first and state.process == first.process]
    text = ""
    if not shown:
        own = [each for each in failed if each[1].own_failure]
        for failure, state in (own or failed)[: 1 if own or not is_cause_known else 0]:
            shown, text = [state], failure.text
    others = [state for _, state in failed if state not in shown]
    line = consequences(_why(state) for state in others)
    if not shown:
        line += "".join(f": {state.loss.text}" for state in others[:1] if state.loss)
    return text, line


def _why(state: RankState) -> str:
    """Return the error of a rank that has failed, and because of which other rank it has."""
    if state.loss is not None and state.own_failure is None:
        return f"{state.loss.error} of rank {state.loss.cause}"
    return "" if state.failure is None else state.failure.error or ""
