"""Tables of text for terminals and files, whose columns are as wide as their longest cell."""

from collections.abc import Sequence


def lines_of(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right_aligned: Sequence[int] = ()
) -> list[str]:
    """Return a heading and a line for each row; some columns are aligned to the right."""
    table = [columns, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if i in right_aligned else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
