"""Agreement of all ranks before training: all continue, or all raise the error of one.

Each rank sends its value or its error to the master, which answers all ranks.
"""

import contextlib
import logging
import math
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from multiverso._mpi.communicator import meeting
from multiverso.errors import OperationTimeout
from multiverso.learn._messages import AgreedValues, Failure, Message, Value
from multiverso.learn._mpi import Channel

_log = logging.getLogger("multiverso")

#: Seconds after which the master logs which ranks it waits for.
_WARNS_AFTER: Final = 10.0

#: Seconds that the other ranks wait after the timeout, so that the master can name the late ranks.
_GRACE: Final = 5.0

#: A file whose content differs between machines, which may have the same host name.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Agreement:
    """What `agreement` exchanges: `value` of this rank, and `values` of all ranks in their order.

    A value is anything that JSON can represent.
    """

    value: Any = None
    values: list[Any]


@contextlib.contextmanager
def agreement(channel: Channel, purpose: str) -> Iterator[Agreement]:
    """Let all ranks continue after the block if it succeeds on all of them. Collective.

    Parameters
    ----------
    channel : Channel
        The channel between the ranks.
    purpose : str
        What the ranks are to do, as in "rank 0 waited 8 s for rank 1 to read its input".

    Raises
    ------
    InputError, StoppedError
        If the block raises an exception on another rank; the master raises its own exception.
    OperationTimeout
        If a rank does not come in time.

    """
    agreed = Agreement()
    raised: Exception | None = None
    try:
        yield agreed
    except Exception as error:
        raised = error
    mine = Value(agreed.value) if raised is None else Failure.of(raised)
    with meeting(channel.timeout):
        exchange = _answer_of_master if channel.rank else _collect_and_answer
        answer = exchange(channel, mine, purpose)
    if raised is not None and channel.rank == 0:
        raise raised
    if isinstance(answer, Failure):
        raise answer.error()
    assert isinstance(answer, AgreedValues)
    agreed.values = answer.values


def _answer_of_master(channel: Channel, mine: Message, purpose: str) -> Message:
    channel.send(mine, 0)
    reason = f"the answer of rank 0, which waits for all ranks to {purpose}"
    return channel.wait(reason, _GRACE)[1]


def _collect_and_answer(channel: Channel, mine: Message, purpose: str) -> Message:
    """Return and send the values of all ranks, or the first failure at once."""
    values = {0: mine.value} if isinstance(mine, Value) else {}
    failure = mine if isinstance(mine, Failure) else None
    backoff = channel.backoff(purpose)
    warns_at = time.monotonic() + _WARNS_AFTER
    while failure is None and len(values) < channel.size:
        received = channel.poll()
        if received is None:
            late = ", ".join(str(rank) for rank in range(channel.size) if rank not in values)
            backoff.message = f"rank 0 waited {channel.timeout:g} s for rank {late} to {purpose}"
            if time.monotonic() > warns_at:
                _log.warning("rank 0 waits for rank %s to %s", late, purpose)
                warns_at = math.inf
            try:
                backoff.pause()
            except OperationTimeout as error:
                channel.broadcast(Failure.of(error))
                raise
            continue
        rank, message = received
        if isinstance(message, Failure):
            failure = Failure(f"rank {rank}: {message.text}", message.is_input_error)
        elif isinstance(message, Value):
            values[rank] = message.value
    answer = failure or AgreedValues([values[rank] for rank in range(channel.size)])
    if channel.size > 1:
        channel.broadcast(answer)
    return answer


def host_name() -> str:
    """Return a name of this machine that differs from those of other machines."""
    try:
        return f"{socket.gethostname()} {_BOOT_ID.read_text('utf-8').strip()}"
    except OSError:
        return socket.gethostname()
