"""All MPI communication of a training: messages between its ranks, and which of them share a host.

No other module of this package calls MPI. Each function accepts None as the communicator, which
means this process alone.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from multiverso._mpi import communicator
from multiverso.errors import OperationTimeout
from multiverso.learn._messages import Message, decode, encode

#: The tag of all messages; any number would do, since a channel has its own communicator.
_TAG: Final = 1

#: The longest pause between two polls, in seconds.
_LONGEST_PAUSE: Final = 2e-3

T = TypeVar("T")


def job_communicator() -> Any:
    """Return the communicator of all ranks of this job, or None outside a job."""
    found = communicator.find_communicator()
    return None if found is None else found.handle


def rank_and_size(comm: Any) -> tuple[int, int]:
    """Return this process's rank and the number of ranks."""
    return (0, 1) if comm is None else (int(comm.Get_rank()), int(comm.Get_size()))


def host_of_each_rank(comm: Any) -> list[int]:
    """Return the host of each rank, named by the lowest rank on it. Collective."""
    rank, size = rank_and_size(comm)
    if size == 1:
        return [0]
    with _host_communicator(comm) as host:
        lowest = host.bcast(rank)
    return list(comm.allgather(lowest))


def once_per_host(comm: Any, function: Callable[[], T]) -> T:
    """Return the result of `function`, called on the lowest rank of this host. Collective."""
    if rank_and_size(comm)[1] == 1:
        return function()
    with _host_communicator(comm) as host:
        result: T = host.bcast(function() if host.Get_rank() == 0 else None)
    return result


@contextlib.contextmanager
def _host_communicator(comm: Any) -> Iterator[Any]:
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    yield host
    host.Free()


class Backoff:
    """Pauses between polls, each twice as long as the last, up to 2 ms.

    `pause` raises OperationTimeout with `message`, `timeout` seconds after the start or restart.
    """

    def __init__(self, first_pause: float, timeout: float, message: str) -> None:
        self._first_pause = first_pause
        self._timeout = timeout
        self._message = message
        self.restart()

    def restart(self) -> None:
        """Restart with the first pause and the full timeout."""
        self._pause = self._first_pause
        self._deadline = time.monotonic() + self._timeout

    def pause(self) -> None:
        """Sleep, or raise OperationTimeout if the deadline has passed."""
        if time.monotonic() > self._deadline:
            raise OperationTimeout(self._message)
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class Channel:
    """Sends messages to other ranks without blocking, and receives them by polling.

    A blocking receive of MPI would keep a core busy, so a rank that waits sleeps between polls, for
    `timeout` seconds at most. The constructor is collective: it duplicates the communicator, so
    that no other code can receive the messages of the channel.
    """

    def __init__(self, comm: Any, timeout: float) -> None:
        self.rank, self.size = rank_and_size(comm)
        self.timeout = timeout
        self._comm = None if self.size == 1 else comm.Dup()
        #: Requests with their data, which MPI may read until the request is complete.
        self._in_flight: list[tuple[Any, bytes]] = []

    def send(self, message: Message, rank: int) -> None:
        """Begin to send a message to a rank."""
        assert self._comm is not None
        data = encode(message)
        self._in_flight = [pair for pair in self._in_flight if not pair[0].Test()]
        self._in_flight.append((self._comm.Isend(data, rank, _TAG), data))

    def broadcast(self, message: Message) -> None:
        """Begin to send a message from the master to every other rank."""
        for rank in range(1, self.size):
            self.send(message, rank)

    def poll(self) -> tuple[int, Message] | None:
        """Return the next message and its sender; None if no message has arrived."""
        from mpi4py import MPI

        assert self._comm is not None
        status = MPI.Status()
        arrived = self._comm.Improbe(MPI.ANY_SOURCE, _TAG, status)
        if not arrived:
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        arrived.Recv([data, MPI.BYTE])
        return status.Get_source(), decode(data)

    def wait(self, reason: str) -> tuple[int, Message]:
        """Wait for the next message; return its sender and the message.

        Raises OperationTimeout, with `reason` in its message, if no message arrives in time.
        """
        backoff = self.backoff(reason)
        while (received := self.poll()) is None:
            backoff.pause()
        return received

    def backoff(self, reason: str, first_pause: float = 1e-5) -> Backoff:
        """Return the pauses of a wait, with an error message that contains `reason`."""
        message = f"rank {self.rank} waited {self.timeout:g} s for {reason}"
        return Backoff(first_pause, self.timeout, message)

    def close(self) -> None:
        """Wait until all messages are sent, and free the communicator; give up at the timeout."""
        assert self._comm is not None
        backoff = self.backoff("its messages to be sent", _LONGEST_PAUSE)
        with contextlib.suppress(OperationTimeout):
            while not all(pair[0].Test() for pair in self._in_flight):
                backoff.pause()
            self._comm.Free()


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

    def close(self) -> None:
        """Do nothing, because no message is in flight."""


def open_channel(comm: Any, timeout: float) -> Channel:
    """Return the channel between the ranks of a communicator. Collective."""
    return LocalChannel(timeout) if rank_and_size(comm)[1] == 1 else Channel(comm, timeout)
