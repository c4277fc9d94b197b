"""Texts to train on, character by character: those that come with Python, or files of one's own.

`load_characters()` needs no download: Python brings the reference of its language, which
``help("topics")`` shows, and its licence.
"""

import dataclasses
import sysconfig
from pathlib import Path

import numpy as np

SHARE = 0.1  # of a text, its end, for validation


class TextError(Exception):
    """There is no usable text; the message is one sentence that says why."""


@dataclasses.dataclass(frozen=True)
class Characters:
    """A text as numbers.

    Attributes
    ----------
    train, valid : array of int64, shape (n,)
        The number of each character of the text to train on, and of that for validation.
    alphabet : str
        The characters, in the order of their numbers.

    """

    train: np.ndarray
    valid: np.ndarray
    alphabet: str

    def windows(self, rng, batch, length):
        """Return stretches at random places, and their next characters, both (batch, length)."""
        starts = rng.integers(0, len(self.train) - length, batch)
        return _cut(self.train, starts, length)

    def held_out(self, count, length):
        """Return stretches for validation, always the same ones, as `windows` does."""
        starts = np.linspace(0, len(self.valid) - length - 1, count).astype(np.int64)
        return _cut(self.valid, starts, length)


def _cut(text, starts, length):
    places = starts[:, None] + np.arange(length + 1)
    found = text[places]
    return found[:, :-1], found[:, 1:]


def load_characters(files=(), least=1000):
    """Return the text of some files, or without any that of Python's own.

    Parameters
    ----------
    files : sequence of Path
        Texts in UTF-8.
    least : int
        How many characters there must be.

    Raises
    ------
    TextError
        If a file cannot be read, or there is too little.

    """
    text = "\n".join(map(_read, files)) if files else _of_python()
    if len(text) < least:
        raise TextError(f"expected a text of {least} characters or more, received {len(text)}")
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    alphabet, numbers = np.unique(codes, return_inverse=True)
    numbers = numbers.astype(np.int64)
    end = int(len(numbers) * (1 - SHARE))
    return Characters(numbers[:end], numbers[end:], "".join(map(chr, alphabet)))


def _of_python():
    from pydoc_data.topics import topics

    licence = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")  # not everywhere
    return "\n".join([*topics.values(), *([_read(licence)] if licence.is_file() else [])])


def _read(path):
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise TextError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TextError(f"cannot read {path}: it is no text in UTF-8") from error
