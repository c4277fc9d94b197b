"""``multiverso explain NAME``: prints what the documentation says about an error."""

import argparse
import difflib
import re
import sys
from typing import Any, Final

from multiverso._commands.programs import folder_of

_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
#: A link that a sentence has only for readers of the page.
_ASIDE: Final = re.compile(rf"\s\({_LINK.pattern}\)")


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="explain an error by its name or its number",
        description="Prints what an error means and what to do, by the name of the exception, the "
        "name in C or the number: `multiverso explain MismatchError`, `MV_ERR_TIMEOUT`, `9`.",
    )
    parser.add_argument("name", metavar="NAME")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what is known about an error; return 2 if nothing is."""
    page = (folder_of("docs") / "errors.md").read_text("utf-8")
    sections, numbers = _sections(page), _numbers(page)
    wanted = numbers.get(options.name.upper().lstrip("-"), options.name).rpartition(".")[2]
    for names, text in sections.items():
        if wanted.lower() in (name.lower() for name in names):
            sys.stdout.write(f"{', '.join(names)}\n\n{text}\n")
            return 0
    known = [name for names in sections for name in names]
    alike = difflib.get_close_matches(wanted, known, 1)
    hint = f"did you mean {alike[0]}?" if alike else f"expected one of {', '.join(known)}"
    sys.stderr.write(f"multiverso explain: there is no error {options.name}: {hint}\n")
    return 2


def _sections(page: str) -> dict[tuple[str, ...], str]:
    """Return the sections about exceptions, by the names in their headings, without links."""
    chapter = page.partition("\n## By exception\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.*)\n", chapter, flags=re.MULTILINE)[1:]
    return {
        tuple(heading.split(", ")): _LINK.sub(r"\1", _ASIDE.sub("", text)).strip()
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _numbers(page: str) -> dict[str, str]:
    """Return the exceptions by their numbers, without a sign, and by their names in C."""
    rows = re.findall(r"^\| -?(\d+) \| `(MV_ERR_\w+)` \| `(\w+)` \|", page, flags=re.MULTILINE)
    return {key: exception for number, name, exception in rows for key in (number, name)}
