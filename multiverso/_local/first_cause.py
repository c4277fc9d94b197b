"""Which of the ranks that failed did so by itself, and first; the others have lost that rank."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from multiverso._native.reports import RankState, first_own_failure


class Failure(NamedTuple):
    """The end of a rank with an exit code other than 0."""

    name: str  # in messages, such as "rank 1 (process 17)"
    code: int  # or minus the number of the signal that ended the process
    time: float  # when it began to fail, by `time.monotonic`
    rank: int | None = None
    cause: int | None = None  # the rank that it had lost before; None if it failed by itself
    error: str = ""  # the class


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
    """Return the traceback that the launcher has to print in full, and a line about all others."""
    states = list(states)
    failed = [(state.failure, state) for state in states if state.failure and state.failure.text]
    failed.sort(key=lambda each: each[0].order)
    first = first_own_failure(states)
    shown = [state for _, state in failed if first and state.process == first.process]
    text = ""
    if not shown:
        own = [each for each in failed if each[1].own_failure]
        for failure, state in own[:1] or ([] if is_cause_known else failed[:1]):
            shown, text = [state], failure.text
    others = [state for _, state in failed if state not in shown]
    line = consequences(map(_why, others))
    if others and not shown and others[0].loss:
        line += f": {others[0].loss.text}"
    return text, line


def _why(state: RankState) -> str:
    """Return the error of a rank that has failed, and because of which other rank it has."""
    if state.loss is not None and state.own_failure is None:
        return f"{state.loss.error} of rank {state.loss.cause}"
    return "" if state.failure is None else state.failure.error or ""
