"""Command-line options that the benchmarks share, and how they reach the jobs of mpirun."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a converter for argparse that accepts only positive, finite numbers of `kind`."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected more than 0, received {value}")
        return value

    parse.__name__ = getattr(kind, "__name__", "number")
    return parse


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark that reports: --json and --silent."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--silent", action="store_true", help="print nothing")
    return parser


def forwarded(options: argparse.Namespace, *names: str) -> list[str]:
    """Return the command line that sets the named options to their values in `options`."""
    arguments = []
    for name in names:
        value = getattr(options, name)
        if value is None or value is False:
            continue
        arguments.append(f"--{name.replace('_', '-')}")
        if value is not True:
            arguments += map(str, value if isinstance(value, list) else [value])
    return arguments


def deliver(
    report: dict[str, Any] | None,
    options: argparse.Namespace,
    show: Callable[[dict[str, Any]], None],
    plot: Callable[[dict[str, Any], Path], None] | None = None,
) -> None:
    """Write, plot and show the report as the options request, if this rank has one."""
    if report is None:
        return
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))
    if plot is not None and options.plot is not None:
        plot(report, options.plot)
    if not options.silent:
        show(report)
