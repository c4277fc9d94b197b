"""What goes with what: which features are refused together, and the error that says so.

The library has the table (``src/base/supported.cc``), and checks the options of sessions and tables
itself. Python asks the table about what only Python knows, such as the folder of a publication, and
about options that it can refuse before a job starts. No other place refuses a combination.
"""

import functools
import json
from typing import Any, NamedTuple

from multiverso._native.library import ERRORS, lib


class Feature(NamedTuple):
    """A feature: its name, what it belongs to, and in Markdown how a program uses it."""

    group: str
    name: str
    meaning: str


class Refusal(NamedTuple):
    """Features that do not go together, and the error of a call that wants them."""

    features: frozenset[str]
    error: type[Exception]
    sentence: str


@functools.cache
def features() -> tuple[Feature, ...]:
    """Return all features, in the order of the page docs/supported.md."""
    return tuple(Feature(**feature) for feature in _table()["features"])


@functools.cache
def refusals() -> tuple[Refusal, ...]:
    """Return all combinations that are refused; the first that applies is the one to report."""
    return tuple(
        Refusal(frozenset(each["features"]), ERRORS[each["code"]], each["sentence"])
        for each in _table()["refusals"]
    )


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(feature.name for feature in features())


@functools.cache  # Programs use few combinations, and some of them in every call.
def refusal_of(*used: str) -> Refusal | None:
    """Return why features do not go together, or None if they do."""
    in_use = frozenset(used)
    if not in_use <= _names():
        raise KeyError(*(in_use - _names()))
    return next((refusal for refusal in refusals() if refusal.features <= in_use), None)


def check(*used: str) -> None:
    """Raise the error of the first refusal whose features are all in use."""
    refusal = refusal_of(*used)
    if refusal is not None:
        raise refusal.error(refusal.sentence)


@functools.cache
def _table() -> dict[str, list[dict[str, Any]]]:
    table: dict[str, list[dict[str, Any]]] = json.loads(lib.MV_Supported())
    return table
