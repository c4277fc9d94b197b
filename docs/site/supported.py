"""Make docs/supported.md from the table of the library: ``python docs/site/supported.py``.

The page is in the repository, since GitHub shows it too; a test compares it with the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from multiverso._native.supported import Feature, Refusal, features, refusals

PAGE = Path(__file__).resolve().parents[1] / "supported.md"

BEGIN = """\
# What goes with what

Every feature goes with every other one, except where this page says otherwise. A call that asks
for such a combination raises an error before any data moves, on all ranks that make it, and says
what to use instead: [`mv.init`](python.md) for the options of a session, the constructor for those
of a table, and each other call for itself. [The list of names](#the-names) at the end says what
each name stands for.

An empty cell means that both features go together. A number leads to the sentence that the error
has. A number in brackets is about three features: the two go together without the third. Features
whose row or column would be empty are left out.
"""

SECTIONS = (
    ("Options of a session", ("session",), ("session",)),
    ("Tables in a session", ("table",), ("session",)),
    ("Options of a table", ("table",), ("table",)),
    ("Calls in a session", ("call",), ("session",)),
    ("Calls of a table", ("call",), ("table",)),
    ("ParamSync and adapters in a session", ("ParamSync and adapters",), ("session",)),
    (
        "ParamSync and adapters with a table",
        ("ParamSync and adapters",),
        ("table", "ParamSync and adapters"),
    ),
)

SENTENCES = """
## The sentences

| | features | error |
|---|---|---|
"""

NAMES = """
## The names

| feature | how a program uses it |
|---|---|
"""

END = """
The table is in [`src/base/supported.cc`](../src/base/supported.cc), which all checks read.
`python docs/site/supported.py` makes this page from it.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [BEGIN]
    for title, rows, columns in SECTIONS:
        parts += [f"\n## {title}\n\n", *_matrix(rows, columns)]
    parts.append(SENTENCES)
    for number, refusal in enumerate(refusals(), 1):
        names = ", ".join(each.name for each in features() if each.name in refusal.features)
        sentence = refusal.sentence.replace("|", "\\|")
        parts.append(
            f'| <a id="s{number}"></a>{number} | {names} '
            f"| `{refusal.error.__name__}`: {sentence} |\n"
        )
    parts.append(NAMES)
    parts += [f"| {feature.name} | {feature.meaning} |\n" for feature in features()]
    return "".join([*parts, END])


def _matrix(rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the lines of a table of pairs, each of which stands there once."""
    order = [feature.name for feature in features()]
    cells: dict[tuple[str, str], list[str]] = {}
    for number, refusal in enumerate(refusals(), 1):
        link = f"[{number}](#s{number})"
        for row in _of(rows, refusal):
            for column in _of(columns, refusal):
                if row.name != column.name and _comes_first(column, row, rows, columns, order):
                    cell = cells.setdefault((row.name, column.name), [])
                    cell.append(link if len(refusal.features) == 2 else f"({link})")
    down = [name for name in order if any(name == row for row, _ in cells)]
    across = [name for name in order if any(name == column for _, column in cells)]
    return [
        f"| | {' | '.join(across)} |\n",
        f"|---|{'---|' * len(across)}\n",
        *(
            f"| {row} | {' | '.join(' '.join(cells.get((row, each), [])) for each in across)} |\n"
            for row in down
        ),
    ]


def _of(groups: Sequence[str], refusal: Refusal) -> list[Feature]:
    return [each for each in features() if each.group in groups and each.name in refusal.features]


def _comes_first(
    column: Feature,
    row: Feature,
    rows: Sequence[str],
    columns: Sequence[str],
    order: list[str],
) -> bool:
    """Return whether the pair stands at this place, and not with row and column exchanged."""
    is_in_both = column.group in rows and row.group in columns
    return not is_in_both or order.index(column.name) < order.index(row.name)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
