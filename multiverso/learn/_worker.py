"""What a worker does: go over its files, exchange with the centre, tell the master about it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from multiverso.learn._centre import Centre
from multiverso.learn._channel import Channel, Message
from multiverso.learn._clockwork import Clockwork
from multiverso.learn._errors import InputError
from multiverso.learn.data import Data, length_of

if TYPE_CHECKING:
    from multiverso.learn.replicas import Batch, Replica  # imports Keras

__all__ = ["ChannelLink", "Link", "StoppedError", "Worker"]

#: Seconds between two reports within an epoch.
_REPORT_EVERY: Final = 0.5


class StoppedError(Exception):
    """The master has ended the training because something failed; the message says what."""


class Link(Protocol):
    """A worker's line to the master."""

    def report(self, message: Message) -> None:
        """Send a message to the master."""

    def order(self) -> Message | None:
        """Return the master's next order, or None if there is none."""

    def next_order(self) -> Message:
        """Wait for the master's next order."""


class ChannelLink:
    """A line to a master in another process.

    Parameters
    ----------
    channel : Channel
        To all ranks.
    when_done : int, optional
        Who is told that the worker is done: its sub-master, if it has one.

    """

    def __init__(self, channel: Channel, when_done: int = 0) -> None:
        self._channel = channel
        self._when_done = when_done

    def report(self, message: Message) -> None:
        """See `Link`."""
        self._channel.send(message, self._when_done if message["kind"] == "done" else 0)

    def order(self) -> Message | None:
        """See `Link`."""
        received = self._channel.poll()
        return None if received is None else received[1]

    def next_order(self) -> Message:
        """See `Link`."""
        return self._channel.wait("the master's next order")[1]


class Worker:
    """Trains a replica on the files of this rank.

    Parameters
    ----------
    replica : Replica
        This rank's copy of the model.
    centre : Centre
        The parameters of all.
    data : Data
        With this rank's files.
    link : Link
        The line to the master.
    clockwork : Clockwork
        Gets the seconds.
    sync_every : int
        Batches between two exchanges.
    local_steps : bool
        Whether the replica steps by itself.
    synchronous : bool
        Whether the session is in lock-step.
    checkpoints : Path, optional
        Where to save when the master says so.

    """

    def __init__(
        self,
        replica: "Replica",
        centre: Centre,
        data: Data,
        link: Link,
        clockwork: Clockwork,
        *,
        sync_every: int,
        local_steps: bool,
        synchronous: bool,
        checkpoints: Path | None = None,
    ) -> None:
        self._replica = replica
        self._centre = centre
        self._data = data
        self._link = link
        self._clockwork = clockwork
        self._sync_every = sync_every
        self._local_steps = local_steps
        self._synchronous = synchronous
        self._checkpoints = checkpoints
        self._stopped = False
        self._sum: NDArray[Any] | None = None
        if sync_every > 1 and not local_steps:
            self._sum = np.empty_like(replica.gradient)
        self._samples = self._updates = 0  # since the last report
        self._total_samples = self._total_updates = 0
        self._reported = time.monotonic()

    def train(self, epochs: range) -> None:
        """Go over the files once for each of `epochs`, unless the master says stop.

        Raises
        ------
        StoppedError
            If the master says that something failed.
        InputError
            If a file cannot be used any more, or a batch has another shape.

        """
        self._wait_for_go()
        self._centre.fetch()
        self._centre.fetch_count()
        for epoch in epochs:
            self._go_over_files()
            self._report(ended=epoch)
            if self._synchronous:
                self._wait_for_go()
            else:
                self._obey_orders()
            if self._stopped:
                break
        self._link.report(
            {
                "kind": "done",
                "samples": self._total_samples,
                "updates": self._total_updates,
                "seconds": self._clockwork.seconds,
                "events": self._clockwork.events,
                "staleness": list(self._centre.staleness.items()),
            }
        )

    def wait_for_end(self) -> None:
        """Wait until the master has done its last work with the parameters."""
        while True:
            order = self._link.next_order()
            self._obey(order)
            if order.get("end"):
                return

    def _go_over_files(self) -> None:
        batches = self._data.generate_data()
        while not self._stopped:
            count = self._compute(batches)
            gradient = None if self._local_steps else self._mean(count)
            if not self._centre.exchange(count, gradient):
                break
            self._updates += bool(count)
            if not self._synchronous:
                if time.monotonic() - self._reported > _REPORT_EVERY:
                    self._report()
                self._obey_orders()

    def _compute(self, batches: "Iterator[Batch]") -> int:
        """Train on up to `sync_every` batches; return on how many."""
        for done in range(self._sync_every):
            with self._clockwork.measure("waiting"):
                batch = next(batches, None)
            if batch is None:
                return done
            with self._clockwork.measure("computing"):
                self._replica.step(batch)
                if self._sum is not None:
                    if done:
                        self._sum += self._replica.gradient
                    else:
                        np.copyto(self._sum, self._replica.gradient)
            self._samples += length_of(batch[0])
        return self._sync_every

    def _mean(self, count: int) -> NDArray[Any]:
        if self._sum is None:
            return self._replica.gradient
        if count > 1:
            self._sum /= count
        return self._sum

    def _report(self, ended: int | None = None) -> None:
        """Report what happened since the last report; `ended` is the epoch that is over."""
        self._link.report(
            {
                "kind": "window",
                "samples": self._samples,
                "updates": self._updates,
                "metrics": self._replica.results() if self._samples else {},
                "ended": ended,
            }
        )
        self._total_samples += self._samples
        self._total_updates += self._updates
        self._samples = self._updates = 0
        self._reported = time.monotonic()

    def _wait_for_go(self) -> None:
        """Wait until the master lets this worker begin, or tells it to stop."""
        with self._clockwork.measure("waiting"):
            while True:
                order = self._link.next_order()
                self._obey(order)
                if "go" in order or "stop" in order:
                    return

    def _obey_orders(self) -> None:
        while (order := self._link.order()) is not None:
            self._obey(order)

    def _obey(self, order: Message) -> None:
        if "failed" in order:
            raise InputError(order["failed"]) if order["input"] else StoppedError(order["failed"])
        if (rate := order.get("learning_rate")) is not None and self._local_steps:
            self._replica.set_learning_rate(rate)
        if (epochs := order.get("save")) is not None and self._checkpoints is not None:
            with self._clockwork.measure("waiting"):
                self._centre.tables.save(self._checkpoints, epochs)
        self._stopped = self._stopped or bool(order.get("stop"))
