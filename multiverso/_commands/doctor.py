"""``multiverso doctor``: checks that jobs of several ranks work here, and advises if not."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable
from typing import Any

from multiverso._commands import _checks, _system_info
from multiverso._commands._argument_types import integer, seconds
from multiverso._commands._checks import Finding
from multiverso._mpi.launcher import find_launcher


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="check that jobs work here, and advise if they do not",
        description="Checks MPI and its plug-ins, the launcher, shared memory, huge pages and "
        "cores, starts ranks that add to a table, and gives advice on each problem. "
        "Exits with 1 if something is broken.",
    )
    parser.add_argument(
        "-np",
        "-n",
        type=integer(1),
        default=2,
        metavar="N",
        help="ranks of the job that it starts (2)",
    )
    parser.add_argument(
        "--limit",
        type=seconds(0.001, 86400),
        default=60.0,
        metavar="SECONDS",
        help="limit of the trial (60)",
    )
    parser.add_argument("--mpirun", metavar="PATH", help="the launcher, if not that of this Python")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check and print the findings; return 1 if something is broken."""
    if find_launcher() is not None:
        sys.stderr.write("multiverso doctor: start it directly, not as a rank of a job\n")
        return 2
    findings = list(
        _checks.check_all(_system_info.collect(options.mpirun), options.np, options.limit)
    )
    if options.json:
        entries = [dataclasses.asdict(finding) for finding in findings]
        sys.stdout.write(json.dumps(entries, indent=2) + "\n")
    else:
        sys.stdout.write(text_of(findings))
    return 1 if any(finding.state == "broken" for finding in findings) else 0


def text_of(findings: Iterable[Finding]) -> str:
    """Return the findings as plain text: a line for each finding, and one for its advice."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<15}  {finding.check:<13}  {finding.found}")
        if finding.advice is not None:
            lines.append(f"{'':<15}  what to do:    {finding.advice}")
    return "\n".join(lines) + "\n"
