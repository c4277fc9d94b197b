"""Texts for character-level training: the documentation that ships with Python, or your files.

`load_characters()` needs no download: Python ships with its language reference, which
``help("topics")`` shows, and its license.
"""

import dataclasses
import sysconfig
from pathlib import Path

import numpy as np

VALIDATION_SHARE = 0.1  # of a text, at its end


class TextError(Exception):
    """No usable text is available; the message says why in one sentence."""


@dataclasses.dataclass(frozen=True)
class Characters:
    """A text as codes of its characters.

    Attributes
    ----------
    train, valid : array of int64, shape (n,)
        The code of each character, for training and for validation.
    alphabet : str
        The characters, in the order of their codes.
    """

    train: np.ndarray
    valid: np.ndarray
    alphabet: str

    def windows(self, rng, batch, length):
        """Return windows at random positions and their next characters, both (batch, length)."""
        starts = rng.integers(0, len(self.train) - length, batch)
        return _windows_at(self.train, starts, length)

    def held_out(self, count, length):
        """Return fixed validation windows in the form that `windows` returns."""
        starts = np.linspace(0, len(self.valid) - length - 1, count).astype(np.int64)
        return _windows_at(self.valid, starts, length)


def _windows_at(text, starts, length):
    windows = text[starts[:, None] + np.arange(length + 1)]
    return windows[:, :-1], windows[:, 1:]


def load_characters(files=(), minimum=1000):
    """Return the text of `files`, or Python's documentation if there are none.

    Parameters
    ----------
    files : sequence of Path
        Texts in UTF-8.
    minimum : int
        Characters that the text must have.

    Raises
    ------
    TextError
        If a file cannot be read or the text is too short.
    """
    text = "\n".join(map(_read, files)) if files else _python_documentation()
    if len(text) < minimum:
        raise TextError(f"expected a text of {minimum} characters or more, received {len(text)}")
    code_points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    alphabet, indices = np.unique(code_points, return_inverse=True)
    indices = indices.astype(np.int64)
    end = int(len(indices) * (1 - VALIDATION_SHARE))
    return Characters(indices[:end], indices[end:], "".join(map(chr, alphabet)))


def _python_documentation():
    from pydoc_data.topics import topics

    license_file = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")  # some distributions omit it
    return "\n".join([*topics.values(), *([_read(license_file)] if license_file.is_file() else [])])


def _read(path):
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise TextError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TextError(f"cannot read {path}: it is not UTF-8 text") from error
