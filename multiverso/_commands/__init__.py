"""The command line: ``multiverso COMMAND``, or ``python -m multiverso COMMAND``.

``python -m multiverso SCRIPT`` runs a script, and ends its whole job when it fails. So does
``python -m multiverso -m MODULE``.

Each command is a module with a function `add_parser`, which declares the command's arguments and
sets ``run``, a function that takes the parsed arguments and returns the exit code.
"""

import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from multiverso._extras import EXIT_CODE, MissingExtraError
from multiverso._version import __version__
from multiverso.errors import MultiversoError

#: The help begins with it, so it shows what most people want to do first.
_USAGE: Final = """multiverso COMMAND ... | multiverso SCRIPT ...

  multiverso demo -np 2            train a model here, with two processes
  multiverso run train.py          start a script as a process per core
  multiverso doctor                check that jobs work on this machine"""


#: The modules of the commands, in the order of the help.
_MODULES: Final = ("run", "join", "top", "verify", "info", "doctor", "explain", "programs")


def _module(name: str) -> Any:
    """Return a module of this package, imported now: all together would delay each command."""
    return importlib.import_module(f"multiverso._commands.{name}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    from multiverso._native.arguments import suggestion  # Its NumPy would delay each command.

    return suggestion(name, known)


def _is_script(argument: str) -> bool:
    """Return whether an argument is a script, by its name, and not a command."""
    path = Path(argument)
    return path.suffix == ".py" or path.is_absolute()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments`; return its exit code, 2 if they are invalid."""
    if arguments is None:
        arguments = sys.argv[1:]
    if arguments and (_is_script(arguments[0]) or (arguments[0] == "-m" and len(arguments) > 1)):
        code: int = _module("_script").run(arguments)
        return code
    import argparse  # It is here, because it would delay the start of every rank.

    parser = argparse.ArgumentParser(
        prog="multiverso",
        usage=_USAGE,
        description="With a script instead of a command, runs it as a rank of a job, such as one\n"
        "of mpirun, and ends the whole job when it fails on one rank.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog="multiverso"
    )
    for name in arguments[:1] if arguments and arguments[0] in _MODULES[:-1] else _MODULES:
        _module(name).add_parser(commands)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands.choices:
        known = ", ".join(commands.choices)
        advice = _suggestion(arguments[0], commands.choices) or f"; expected one of {known}"
        sys.stderr.write(f"multiverso: there is no command {arguments[0]!r}{advice}\n")
        return EXIT_CODE
    options, unknown = parser.parse_known_args(arguments)
    if unknown:  # The parser of the command shows its own options.
        command = commands.choices[arguments[0]]
        flags = [flag for action in command._actions for flag in action.option_strings]
        command.error(f"unknown arguments: {' '.join(unknown)}{_suggestion(unknown[0], flags)}")
    try:
        code = options.run(options)
    except (MultiversoError, OSError) as error:
        sys.stderr.write(f"multiverso: {error}\n")
        code = 1
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        code = EXIT_CODE
    return code
