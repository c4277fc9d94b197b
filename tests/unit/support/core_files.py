"""The files of the C++ core, for tests of its structure."""

import re
from collections.abc import Iterator
from pathlib import Path

# Literals are matched too, so that comment marks in a literal do not begin a comment. A quote after
# a digit, as in 1'000, does not begin a literal.
COMMENT_OR_LITERAL = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


def code_of(path: Path) -> str:
    """Return the text of a file without its comments, which may mention anything; strings stay."""
    return COMMENT_OR_LITERAL.sub(lambda m: " " if m["comment"] else m[0], path.read_text("utf-8"))


def core_files(src: Path) -> Iterator[Path]:
    """Yield every C and C++ file under `src`, sorted by path."""
    suffixes = {".h", ".hpp", ".c", ".cc", ".cpp", ".inc"}
    yield from sorted(path for path in src.rglob("*") if path.suffix in suffixes)
