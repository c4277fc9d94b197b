"""The calls of a group whose ranks are on several hosts, at once or in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from torch import distributed

from multiverso.errors import MismatchError, MultiversoError, StateError
from multiverso.torch_ext.distributed._calls import Call, SharedMemory
from multiverso.torch_ext.distributed._exchange import Exchange
from multiverso.torch_ext.distributed._host_calls import HostCalls
from multiverso.torch_ext.distributed._rendezvous import Host
from multiverso.torch_ext.distributed._threads import OrderedThread


class Queued:
    """A call in the thread of `Hosts`.

    Attributes
    ----------
    error : Exception or None
        The error with which it has ended, once `wait` has returned True.

    """

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.error: Exception | None = None

    def run(self, make: Callable[[], None]) -> None:
        """Make the call."""
        try:
            make()
        except Exception as error:
            self.error = error
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait, without end if `seconds` is negative. Return whether the call has ended."""
        return self._ended.wait(None if seconds < 0 else seconds)

    def is_over(self) -> bool:
        """Return whether the call no longer uses its memory. Does not wait."""
        return self._ended.is_set()


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
        self._seconds = timeout.total_seconds()
        self._memory = SharedMemory(here, rank, timeout)
        self._exchange = Exchange(store, rank, ranks, timeout)
        self._calls = HostCalls(self._memory, self._exchange, ranks, rank)
        self._thread = OrderedThread("multiverso-hosts")
        self._turn = threading.Lock()
        self._last: Queued | None = None
        self._error: MultiversoError | None = None
        self._has_left = False

    def run(self, call: Call) -> None:
        """Make a call, after those that have been started."""
        if self._last is None or self._last.is_over():
            self._make(call)  # Without the threads that would wake each other.
            return
        queued = self.start(call)
        queued.wait(-1)
        if queued.error is not None:
            raise queued.error

    def start(self, call: Call) -> Queued:
        """Start a call. The memory of its tensors must stay valid until it has ended."""
        queued = Queued()
        self._thread.put(lambda: queued.run(lambda: self._make(call)))
        self._last = queued
        return queued

    def close(self) -> None:
        """Wait for this rank's calls, and leave. The other ranks may leave later."""
        self._thread.end()
        self._thread.join(self._seconds)
        self.leave("its process group was destroyed")

    def leave(self, reason: str) -> None:
        """End this rank's calls with an error; ranks that wait for it receive the first reason."""
        self._thread.end()
        if self._has_left:
            return
        self._has_left = True
        self._memory.leave(reason)
        self._exchange.leave(reason)

    def _make(self, call: Call) -> None:
        with self._turn:
            if self._error is not None:
                raise type(self._error)(*self._error.args)
            try:
                self._calls.make(call)
            except MismatchError:
                raise
            except BaseException as error:
                # This rank has stopped in the middle of a call, perhaps by Ctrl-C. The others must
                # not wait for it, and must not take its next call for the rest of this one.
                self._error = self._in_words_of_the_group(error)
                self.leave(str(self._error.args[0]))
                if isinstance(error, MultiversoError):
                    raise self._error from error
                raise

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
