"""The program ``multiverso-learn``: train a Keras model on all ranks, and draw what came of it."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from multiverso._version import __version__

__all__ = ["Parser", "is_master", "main", "train"]

#: Where launchers tell a process its rank; of several, the first one that is there.
_RANKS: Final = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


class Parser(argparse.ArgumentParser):
    """Speaks on the master only; the other ranks leave with the same exit code."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if is_master():
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Say in one sentence what is wrong, and exit with 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def is_master() -> bool:
    """Return whether the launcher calls this process rank 0, or there is no launcher."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0") == "0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``multiverso-learn`` with these arguments, or those of the command line.

    Returns
    -------
    int
        The exit code: 0, or 2 if the input cannot be used.

    """
    parser = Parser(prog="multiverso-learn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"multiverso {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text, add in (
        ("train", "Train a Keras model on all ranks of an MPI job.", _add_train),
        ("plot", "Draw the histories of trainings as PNGs.", _add_plot),
    ):
        add(commands.add_parser(name, help=text, description=text))
    return _run(parser, arguments)


def train(arguments: Sequence[str] | None = None) -> int:
    """Run ``multiverso-learn train`` under the name of the program that calls it."""
    parser = Parser(description="Train a Keras model on all ranks of an MPI job.")
    _add_train(parser)
    return _run(parser, arguments)


def _run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    given = parser.parse_args(arguments)
    from multiverso.learn._errors import InputError

    run = vars(given).pop("run")
    try:
        run(given)
    except InputError as error:
        if is_master():
            sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 2
    return 0


def _add_train(parser: argparse.ArgumentParser) -> None:
    from multiverso.learn import _train_command

    _train_command.add_options(parser)
    parser.set_defaults(run=_train_command.run)


def _add_plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "histories", nargs="+", metavar="HISTORY.json", help="what `multiverso-learn train` wrote"
    )
    parser.add_argument(
        "--output", default=".", metavar="FOLDER", help="where to put the PNGs (default: here)"
    )
    parser.set_defaults(run=_plot)


def _plot(arguments: argparse.Namespace) -> None:
    from multiverso.learn._plot import plot

    for path in plot(arguments.histories, arguments.output):
        sys.stdout.write(f"wrote {path}\n")
