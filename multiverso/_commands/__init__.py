"""The command line: ``multiverso COMMAND``, or ``python -m multiverso COMMAND``.

``python -m multiverso SCRIPT`` runs a script, and ends its whole job when it fails.

Each command is a module with a function `add_parser`, which declares the command's arguments and
sets ``run``, a function that takes the parsed arguments and returns the exit code.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from multiverso._commands import _script, doctor, info, join, programs, run, top, verify
from multiverso._extras import EXIT_CODE, MissingExtraError
from multiverso._version import __version__
from multiverso.errors import MultiversoError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments`; return its exit code, 2 if they are invalid."""
    if arguments is None:
        arguments = sys.argv[1:]
    if arguments and Path(arguments[0]).suffix == ".py":
        return _script.run(arguments)
    parser = argparse.ArgumentParser(
        prog="multiverso",
        description="Tools of a parameter server for MPI jobs. With a script (train.py) instead of "
        "a command, runs it, and ends the whole job when it fails on one rank.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (run, join, top, verify, info, doctor, programs):
        command.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
    except (MultiversoError, OSError) as error:
        sys.stderr.write(f"multiverso: {error}\n")
        code = 1
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        code = EXIT_CODE
    return code
