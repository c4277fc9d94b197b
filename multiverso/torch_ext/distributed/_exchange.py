"""Exchanges tensors between ranks of several hosts by gloo."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import torch
from torch import distributed

from multiverso.errors import MultiversoError, OperationTimeout, PeerLostError, StateError

#: A rank waits for other hosts for this part of the timeout, and then tells its own host, whose
#: ranks wait for it.
_PART_OF_TIMEOUT: Final = 0.9


class Swap(NamedTuple):
    """An exchange that has begun: the ranks, and the call of gloo for each of them."""

    exchange: Exchange
    works: list[tuple[int, Any]]

    def wait(self) -> None:
        """Wait for the exchange.

        Raises
        ------
        PeerLostError, OperationTimeout
            If another rank is lost or late.

        """
        for rank, work in self.works:
            begun = time.monotonic()
            try:
                work.wait()
            except RuntimeError as error:
                raise self.exchange.named(error, rank, begun) from error


class Exchange:
    """Sends tensors to ranks of other hosts, and receives theirs. One thread uses it.

    Parameters
    ----------
    store : torch.distributed.Store
        A store of all ranks of the group.
    rank : int
        This rank.
    hosts : list of list of int
        The ranks of each host, whose first one is its leader.
    timeout : timedelta
        The limit of each wait.

    """

    def __init__(
        self, store: distributed.Store, rank: int, hosts: list[list[int]], timeout: timedelta
    ) -> None:
        # A store serves one thread at a time, and this one must not wait for others.
        self._store = distributed.PrefixStore("hosts", store.clone())
        self._rank, self._hosts = rank, hosts
        self._limit = timeout * _PART_OF_TIMEOUT
        self._gloo: Any = distributed.ProcessGroupGloo(
            self._store, rank, sum(map(len, hosts)), self._limit
        )
        #: The number of this rank's host.
        self.place = next(place for place, ranks in enumerate(hosts) if rank in ranks)
        #: Whether this rank is the leader of its host.
        self.is_leader = rank == hosts[self.place][0]

    def swap(self, sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor]) -> Swap:
        """Start to exchange with the leaders of all other hosts, if this rank is a leader."""
        if not self.is_leader:
            return Swap(self, [])
        others = [place for place in range(len(self._hosts)) if place != self.place]
        return self.begin(
            {self._hosts[place][0]: sent[place] for place in others},
            {self._hosts[place][0]: received[place] for place in others},
        )

    def begin(self, sent: Mapping[int, torch.Tensor], received: Mapping[int, torch.Tensor]) -> Swap:
        """Start to send tensors to ranks, and to receive tensors from ranks.

        Those between two ranks arrive in the order of these calls.
        """
        if self._gloo is None:
            msg = "this rank has left the group"
            raise StateError(msg)
        works = []
        # A sender of gloo waits until the receiver is ready.
        for call, tensors in ((self._gloo.recv, received), (self._gloo.send, sent)):
            for rank, tensor in tensors.items():
                if tensor.numel():  # gloo lacks some types, so it moves bytes.
                    begun = time.monotonic()
                    try:
                        works.append((rank, call([tensor.view(-1).view(torch.uint8)], rank, 0)))
                    except RuntimeError as error:
                        raise self.named(error, rank, begun) from error
        return Swap(self, works)

    def leave(self, reason: str) -> None:
        """End all exchanges; ranks that wait for this one receive the reason."""
        with contextlib.suppress(RuntimeError):  # The process that has the store may be lost.
            self._store.set(f"left/{self._rank}", reason)
        self._gloo.abort()
        self._gloo = None  # This closes its connections, which ends the waits of the others.

    def named(self, error: RuntimeError, rank: int, begun: float) -> MultiversoError:
        """Return the error that names a rank for one of gloo, after a wait that began then."""
        host = next(ranks for ranks in self._hosts if rank in ranks)
        text, key = f"rank {rank}, on the host of the ranks {host}", f"left/{rank}"
        with contextlib.suppress(distributed.DistError):
            if self._store.check([key]):
                return PeerLostError(f"{text}, left ({self._store.get(key).decode()})")
        limit = self._limit.total_seconds()
        if time.monotonic() - begun >= limit:
            return OperationTimeout(f"waited {limit:g} s for {text}")
        return PeerLostError(f"{text}, is lost: {error}")
