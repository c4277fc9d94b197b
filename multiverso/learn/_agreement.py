"""What the ranks of a session tell each other: `share` values, and `agreement` to go on or fail."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from multiverso import api
from multiverso._extras import MissingExtraError
from multiverso._session import Session
from multiverso.learn._input import InputError, first_line

#: The attribute of an exception after which all ranks have left the training together.
_AGREED: Final = "_all_ranks_have_failed"


class StoppedError(RuntimeError):
    """The training was ended because another rank failed; the message is that rank's error."""


def share(value: Any) -> list[Any]:
    """Return the values of all ranks, in rank order. Collective.

    A value is anything that JSON can represent. Floats keep all their bits.
    """
    session = api.current_session()
    if session.size == 1:
        return [value]
    text = json.dumps(value).encode()
    sizes = np.zeros(session.size, np.int64)
    sizes[session.rank] = len(text)
    api.aggregate(sizes)
    # Each rank has a place of its own, where the others add zeros, so the sum is all texts.
    ends = np.cumsum(sizes)
    begins = ends - sizes
    texts = np.zeros(ends[-1], np.int32)
    texts[begins[session.rank] : ends[session.rank]] = np.frombuffer(text, np.uint8)
    api.aggregate(texts)
    whole = texts.astype(np.uint8).tobytes()
    return [json.loads(whole[begin:end]) for begin, end in zip(begins, ends, strict=True)]


@contextlib.contextmanager
def agreement() -> Iterator[None]:
    """Let all ranks continue after the block if it succeeds on all of them. Collective.

    A rank whose block raises an exception raises that exception, and the others InputError or
    StoppedError.
    """
    raised: Exception | None = None
    failure = None
    try:
        yield
    except Exception as error:
        raised = error
        is_input_error = isinstance(error, InputError | MissingExtraError)
        kind = "" if is_input_error else f"{type(error).__name__}: "
        failure = is_input_error, kind + first_line(error)
    for rank, described in enumerate(share(failure)):
        if described is not None:
            is_input_error, text = described
            if raised is None:
                raised = (InputError if is_input_error else StoppedError)(f"rank {rank}: {text}")
            setattr(raised, _AGREED, True)
            raise raised


@contextlib.contextmanager
def training_session(sync: bool, comm: Any, timeout: float) -> Iterator[Session]:
    """Open a session, or use the open one, and close it if all ranks agree on an error.

    After any other error, this rank leaves the session at once. Raises InputError in an elastic
    session, whose workers come and go.
    """
    agreed: Exception | None = None
    with api.session(sync=sync, comm=comm, timeout=timeout) as opened:
        if opened.options.elastic:
            raise InputError("expected a session whose ranks stay, received an elastic one")
        try:
            yield opened
        except Exception as error:
            if not getattr(error, _AGREED, False):
                raise
            agreed = error
    if agreed is not None:
        raise agreed
