"""Short messages between the workers and the master: how far they are, and what to do next.

Parameters go through tables; these are the few words beside them, JSON over MPI. Whoever waits
sleeps a little longer each time, because a blocked receive of MPI would burn a core.
"""

import json
import time
from typing import Any, Final

from multiverso.errors import OperationTimeout

__all__ = ["Channel", "Message"]

Message = dict[str, Any]

_TAG: Final = 1

#: Seconds of the first and of the longest sleep between two looks.
_SLEEPS: Final = (1e-5, 2e-3)


class Channel:
    """What one rank sends and receives.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The ranks; None stands for this process alone. It is duplicated, which is collective, so
        that no message of anybody else's can be taken for one of these.
    timeout : float
        Seconds that a wait lasts at most.

    """

    def __init__(self, comm: Any, timeout: float) -> None:
        alone = comm is None or comm.Get_size() == 1
        self._comm = None if alone else comm.Dup()
        self.rank = 0 if comm is None else int(comm.Get_rank())
        self.size = 1 if comm is None else int(comm.Get_size())
        self.timeout = timeout
        self._under_way: list[tuple[Any, bytes]] = []

    def send(self, message: Message, rank: int) -> None:
        """Send to a rank, without waiting for it."""
        if self._comm is None:
            return
        data = json.dumps(message).encode()
        self._under_way = [pair for pair in self._under_way if not pair[0].Test()]
        self._under_way.append((self._comm.Isend(data, rank, _TAG), data))

    def send_to_workers(self, message: Message) -> None:
        """Send to all ranks but the master."""
        for rank in range(1, self.size):
            self.send(message, rank)

    def poll(self) -> tuple[int, Message] | None:
        """Return the next message and its sender, or None if there is none yet."""
        if self._comm is None:
            return None
        from mpi4py import MPI

        status = MPI.Status()
        arrived = self._comm.Improbe(MPI.ANY_SOURCE, _TAG, status)
        if not arrived:
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        arrived.Recv([data, MPI.BYTE])
        return status.Get_source(), json.loads(data)

    def wait(self, why: str) -> tuple[int, Message]:
        """Return the next message and its sender, and wait for it if need be.

        Raises
        ------
        OperationTimeout
            If none comes before the deadline; `why` says what was waited for.

        """
        deadline = time.monotonic() + self.timeout
        sleep, longest = _SLEEPS
        while (message := self.poll()) is None:
            if time.monotonic() > deadline:
                msg = f"rank {self.rank} waited {self.timeout:g} s for {why}"
                raise OperationTimeout(msg)
            time.sleep(sleep)
            sleep = min(2 * sleep, longest)
        return message

    def close(self) -> None:
        """Wait until everything has been sent, and free what MPI keeps. Collective."""
        if self._comm is not None:
            deadline = time.monotonic() + self.timeout
            while not all(pair[0].Test() for pair in self._under_way):
                if time.monotonic() > deadline:
                    return
                time.sleep(_SLEEPS[1])
            self._comm.Free()
            self._comm = None
