"""Types of command-line arguments, for argparse."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from multiverso._local.job import WorkerRange
from multiverso._native import places


def integer(least: int) -> Callable[[str], int]:
    """Return a type that accepts integers >= `least`."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1  # too small, so that the next lines reject it
        if number < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, received {text!r}")
        return number

    return convert


def seconds(least: float, most: float) -> Callable[[str], float]:
    """Return a type that accepts numbers of seconds from `least` to `most`."""

    def convert(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = least - 1  # too small, so that the next lines reject it
        if not least <= number <= most:
            msg = f"expected {least:g} to {most:g} seconds, received {text!r}"
            raise argparse.ArgumentTypeError(msg)
        return number

    return convert


def address(text: str) -> tuple[str, int]:
    """Return the host and the port of a text such as "9400" or "0.0.0.0:9400"."""
    host, _, port = text.rpartition(":")
    if not (port.isdecimal() and int(port) < 1 << 16):
        msg = f"expected PORT or HOST:PORT with a port below 65536, received {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return host.strip("[]") or "127.0.0.1", int(port)


def place(text: str) -> Path:
    """Return the path of a place on this machine, relative if the text is."""
    try:
        found = Path(places.path(text, "path"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    given = Path(text)  # Messages show what the user has written.
    return given if os.path.abspath(given) == str(found) else found


def worker_range(text: str) -> WorkerRange:
    """Return the range that a text such as "2:8" describes."""
    try:
        return WorkerRange.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
