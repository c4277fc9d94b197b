"""The command-line options and the final report that the example programs share."""

import argparse
import contextlib
import json
import math
import sys
from pathlib import Path


def positive(kind):
    """Return a converter for argparse that accepts only positive, finite numbers of `kind`."""

    def parse(text):
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError(text)
        return value

    parse.__name__ = f"positive {kind.__name__}"  # argparse names it in its errors
    return parse


def natural(text):
    """Convert an option to an integer >= 0."""
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def make_parser(description, *, epochs, batch_size, learning_rate, seed=0):
    """Return a parser with the options of all training programs, and these defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option, default = parser.add_argument, "(default %(default)s)"
    option("--epochs", type=positive(int), default=epochs, help=default)
    option("--batch-size", type=positive(int), default=batch_size, help=default)
    option("--learning-rate", type=positive(float), default=learning_rate, help=default)
    option("--seed", type=natural, default=seed, help=default)
    option("--json", type=Path, metavar="FILE", help="also write the result to FILE")
    return parser


class NoBar:
    """Takes the place of a progress bar where tqdm is not installed."""

    def set_postfix_str(self, text):
        """Show nothing."""

    def update(self):
        """Show nothing."""

    def close(self):
        """Show nothing."""


def progress_bar(total, unit, shows):
    """Return a progress bar, which is visible on a terminal if `shows`, and if tqdm is there."""
    with contextlib.suppress(ImportError):
        from tqdm import tqdm

        # disable=None shows the bar only on a terminal.
        return tqdm(total=total, unit=unit, disable=None if shows else True)
    return NoBar()


def report(result, path, suffix=""):
    """Print one line about `result`; if `path` is given, also write it there as JSON.

    Return the exit code of the program. `suffix` is added to the line.
    """
    print(
        f"test error {result['test_error']:.2%}, {result['seconds']:.2f} seconds"
        f" (workers {result['workers']}, updates {result['updates']},"
        f" epochs {result['epochs']}{suffix})"
    )
    return write_json(result, path)


def write_json(result, path):
    """Write `result` to `path`, if given, as JSON; return the exit code of the program."""
    try:
        if path is not None:
            path.write_text(json.dumps(result) + "\n")
    except OSError as error:
        print(f"error: cannot write {path}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
