"""All MPI communication of a training: messages between its ranks.

No other module of this package calls MPI. Each function accepts None as the communicator, which
means this process alone. No function makes a collective call of MPI, which would wait for absent
ranks forever.
"""

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from multiverso._local.job import find_local_job
from multiverso._mpi import communicator
from multiverso._native.launchers import own_environ
from multiverso.errors import LauncherError, OperationTimeout
from multiverso.learn._messages import Message, decode, encode

#: The tags of messages: ``_FIRST_TAG + n % _NUM_TAGS`` for channel number n of a communicator.
#: Programs rarely use such high numbers, and every MPI allows tags below 32768.
_FIRST_TAG: Final = 0x5000
_NUM_TAGS: Final = 0x1000

#: The longest pause between two polls, in seconds.
_LONGEST_PAUSE: Final = 2e-3

#: Seconds that `Channel.close` waits for messages to be sent.
_CLOSE_TIMEOUT: Final = 10.0

#: Requests of closed channels with their data, which MPI may still read or write.
_unfinished: Final[list[tuple[Any, ...]]] = []


def job_communicator(timeout: float) -> Any:
    """Return the communicator of all ranks of this job, or None outside a job.

    MPI_Init may take `timeout` seconds; after that, the process ends. Raises LauncherError in a job
    of several ranks without MPI.
    """
    job = find_local_job(own_environ())
    if job is not None and job.size > 1:
        msg = (
            f"multiverso.learn needs MPI, but this job of {job.size} ranks was started without it: "
            "start it with mpirun, or with multiverso run --mpi"
        )
        raise LauncherError(msg)
    found = communicator.find_communicator(None, timeout)
    return None if found is None else found.handle


def rank_and_size(comm: Any) -> tuple[int, int]:
    """Return this process's rank and the number of ranks."""
    return (0, 1) if comm is None else (int(comm.Get_rank()), int(comm.Get_size()))


@functools.cache
def _count_key() -> int:
    """Return the key of the attribute of communicators that counts their channels."""
    from mpi4py import MPI

    return int(MPI.Comm.Create_keyval())


def _next_tag(comm: Any) -> int:
    """Return the tag of the next channel of a communicator, the same on all of its ranks.

    It differs from that of the last channel, whose messages may still arrive after a failure.
    """
    count = (comm.Get_attr(_count_key()) or 0) + 1
    comm.Set_attr(_count_key(), count)
    return _FIRST_TAG + count % _NUM_TAGS


class Backoff:
    """Pauses between polls, each twice as long as the last, up to 2 ms.

    `pause` raises OperationTimeout with `message`, `timeout` seconds after the start or restart.
    """

    def __init__(self, first_pause: float, timeout: float, message: str) -> None:
        self._first_pause = first_pause
        self._timeout = timeout
        self.message = message
        self.restart()

    def restart(self) -> None:
        """Restart with the first pause and the full timeout."""
        self._pause = self._first_pause
        self._deadline = time.monotonic() + self._timeout

    def pause(self) -> None:
        """Sleep, or raise OperationTimeout if the deadline has passed."""
        if time.monotonic() > self._deadline:
            raise OperationTimeout(self.message)
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class Channel:
    """Sends messages to other ranks without blocking, and receives them by polling.

    A blocking receive of MPI would keep a core busy, so a rank that waits sleeps between polls, for
    `timeout` seconds at most. All ranks open equally many channels of a communicator. While a
    channel is open, other threads must not receive messages with any tag from the communicator.
    """

    def __init__(self, comm: Any, timeout: float) -> None:
        self.rank, self.size = rank_and_size(comm)
        self.timeout = timeout
        self._comm = None if self.size == 1 else comm
        self._tag = 0 if self.size == 1 else _next_tag(comm)
        #: Requests with their data, which MPI may read until the request is complete.
        self._in_flight: list[tuple[Any, bytes]] = []
        #: The request of a message that has begun to arrive, its sender and its data.
        self._arriving: tuple[Any, int, bytearray] | None = None

    def send(self, message: Message, rank: int) -> None:
        """Begin to send a message to a rank."""
        assert self._comm is not None
        data = encode(message)
        self._in_flight = [pair for pair in self._in_flight if not pair[0].Test()]
        self._in_flight.append((self._comm.Isend(data, rank, self._tag), data))

    def broadcast(self, message: Message) -> None:
        """Begin to send a message from the master to every other rank."""
        for rank in range(1, self.size):
            self.send(message, rank)

    def poll(self) -> tuple[int, Message] | None:
        """Return the next message and its sender; None if no message has arrived."""
        from mpi4py import MPI

        assert self._comm is not None
        if self._arriving is None:
            status = MPI.Status()
            found = self._comm.Improbe(MPI.ANY_SOURCE, self._tag, status)
            if not found:
                return None
            data = bytearray(status.Get_count(MPI.BYTE))
            self._arriving = (found.Irecv([data, MPI.BYTE]), status.Get_source(), data)
        request, sender, data = self._arriving
        if not request.Test():
            return None
        self._arriving = None
        return sender, decode(data)

    def wait(self, reason: str, grace: float = 0) -> tuple[int, Message]:
        """Wait for the next message; return its sender and the message.

        Raises OperationTimeout, with `reason` in its message, if no message arrives within the
        timeout and `grace` seconds.
        """
        backoff = self.backoff(reason, grace=grace)
        while (received := self.poll()) is None:
            backoff.pause()
        return received

    def backoff(self, reason: str, first_pause: float = 1e-5, grace: float = 0) -> Backoff:
        """Return the pauses of a wait, with an error message that contains `reason`."""
        message = f"rank {self.rank} waited {self.timeout:g} s for {reason}"
        return Backoff(first_pause, self.timeout + grace, message)

    def close(self) -> None:
        """Wait a few seconds until all messages are sent; a receiver may have ended."""
        if self._arriving is not None:
            _unfinished.append(self._arriving)
        backoff = Backoff(_LONGEST_PAUSE, _CLOSE_TIMEOUT, "")
        with contextlib.suppress(OperationTimeout):
            while not all(pair[0].Test() for pair in self._in_flight):
                backoff.pause()
            return
        _unfinished.extend(self._in_flight)


class LocalChannel(Channel):
    """The channel of one rank that is both master and worker: messages stay in the process.

    `deliver` receives each message of the worker, which polls for those of the master.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__(None, timeout)
        self._orders: deque[Message] = deque()
        self.deliver: Callable[[Message], None] = lambda message: None

    def send(self, message: Message, rank: int) -> None:
        self.deliver(message)

    def broadcast(self, message: Message) -> None:
        self._orders.append(message)

    def poll(self) -> tuple[int, Message] | None:
        return (0, self._orders.popleft()) if self._orders else None


def open_channel(comm: Any, timeout: float) -> Channel:
    """Return a channel between the ranks of a communicator."""
    return LocalChannel(timeout) if rank_and_size(comm)[1] == 1 else Channel(comm, timeout)
