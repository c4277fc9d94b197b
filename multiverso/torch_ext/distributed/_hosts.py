"""The calls of a group whose ranks are on several hosts, and how they end."""

from __future__ import annotations

from datetime import timedelta

from torch import distributed

from multiverso.errors import MismatchError, MultiversoError, StateError
from multiverso.torch_ext.distributed._calls import Call, SharedMemory
from multiverso.torch_ext.distributed._exchange import Exchange
from multiverso.torch_ext.distributed._host_calls import HostCalls
from multiverso.torch_ext.distributed._rendezvous import Host


class Hosts:
    """Makes calls over the ranks of several hosts, as `SharedMemory` does on one.

    Parameters
    ----------
    store : torch.distributed.Store
        A store of all ranks of the group.
    rank : int
        This rank.
    hosts : list of Host
        All hosts of the group, in the order of their first ranks.
    timeout : timedelta
        The limit of each wait.

    """

    def __init__(
        self, store: distributed.Store, rank: int, hosts: list[Host], timeout: timedelta
    ) -> None:
        ranks = [host.ranks for host in hosts]
        here = next(host for host in hosts if rank in host.ranks)
        self._here = here.ranks
        self._memory = SharedMemory(here, rank, timeout)
        self._exchange = Exchange(store, rank, ranks, timeout)
        self._calls = HostCalls(self._memory, self._exchange, ranks, rank)
        self._error: MultiversoError | None = None
        self._has_left = False

    def run(self, call: Call) -> None:
        """Make a call."""
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        try:
            self._calls.make(call)
        except MismatchError:
            raise
        except BaseException as error:
            # This rank has stopped in the middle of a call, perhaps by Ctrl-C. The others must not
            # wait for it, and must not take its next call for the rest of this one.
            self._error = self._in_words_of_the_group(error)
            self.leave(str(self._error.args[0]))
            if isinstance(error, MultiversoError):
                raise self._error from error
            raise

    def leave(self, reason: str) -> None:
        """End this rank's calls with an error; ranks that wait for it receive the first reason."""
        if self._has_left:
            return
        self._has_left = True
        self._memory.leave(reason)
        self._exchange.leave(reason)

    def _in_words_of_the_group(self, error: BaseException) -> MultiversoError:
        if not isinstance(error, MultiversoError):
            return StateError(f"an earlier call of this rank ended in {error!r}")
        lost = getattr(error, "rank", None)
        if lost is None or len(self._here) == 1:
            return error
        text = (
            f"rank {self._here[lost]} of the group, which its host, with the ranks {self._here}, "
            f"counts as {lost}: {error.args[0]}"
        )
        return type(error)(text)
