"""What a sub-master does: look after its group, and pass on what it has learned."""

import time
from pathlib import Path
from typing import Any, Final

from multiverso.errors import OperationTimeout
from multiverso.learn._channel import Channel, Message
from multiverso.learn._clockwork import Clockwork
from multiverso.learn._errors import InputError
from multiverso.learn._group_centre import GroupTop
from multiverso.learn._layout import Group
from multiverso.learn._tables import Tables
from multiverso.learn._worker import StoppedError

__all__ = ["SubMaster"]

#: Seconds of the first and of the longest sleep between two looks at the group.
_SLEEPS: Final = (1e-4, 2e-3)


class SubMaster:
    """Passes on what its group has learned after every `sync_every` updates, and at the end.

    The workers tell it when they are done. It tells the master once their last updates are among
    the parameters of all, so that nothing is missing from what the master then saves.

    Parameters
    ----------
    top : GroupTop
        Exchanges the parameters.
    tables : Tables
        What the master may want to be saved.
    group : Group
        The workers to look after.
    channel : Channel
        To the workers and the master.
    clockwork : Clockwork
        Gets the seconds.
    sync_every : int
        Updates of the group between two exchanges.
    checkpoints : Path, optional
        Where to save when the master says so.

    """

    def __init__(
        self,
        top: GroupTop,
        tables: Tables,
        group: Group,
        channel: Channel,
        clockwork: Clockwork,
        *,
        sync_every: int,
        checkpoints: Path | None = None,
    ) -> None:
        self._top = top
        self._tables = tables
        self._group = group
        self._channel = channel
        self._clockwork = clockwork
        self._sync_every = sync_every
        self._checkpoints = checkpoints
        self._done: dict[int, Message] = {}

    def lead(self) -> None:
        """Look after the group until the master says that training is over.

        Raises
        ------
        StoppedError, InputError
            If the master says that something failed.
        OperationTimeout
            If neither the group nor the master shows a sign of life before the deadline.

        """
        sleep, longest = _SLEEPS
        heard = time.monotonic()
        seen = 0
        while True:
            received = self._channel.poll()
            if received is not None and self._take(*received):
                return
            pending = self._top.pending()
            if received is not None or pending != seen:
                heard, sleep = time.monotonic(), _SLEEPS[0]
            if pending >= self._sync_every:
                self._top.pass_on()
                pending = 0
            seen = pending
            if received is None:
                self._check(heard)
                with self._clockwork.measure("waiting"):
                    time.sleep(sleep)
                sleep = min(2 * sleep, longest)

    def _take(self, rank: int, message: Message) -> bool:
        """Take a message of the master or of a worker; return whether training is over."""
        if message.get("kind") == "done":
            self._done[rank] = message
            if len(self._done) == len(self._group.workers):
                self._finish()
            return False
        if "failed" in message:
            text = message["failed"]
            raise InputError(text) if message["input"] else StoppedError(text)
        if (epochs := message.get("save")) is not None and self._checkpoints is not None:
            self._top.pass_on()
            with self._clockwork.measure("waiting"):
                self._tables.save(self._checkpoints, epochs)
        return bool(message.get("end"))

    def _finish(self) -> None:
        self._top.pass_on()
        report: dict[str, Any] = {
            "kind": "group",
            "workers": list(self._group.workers),
            "exchanges": self._top.exchanges,
            "seconds": self._clockwork.seconds,
            "events": self._clockwork.events,
        }
        self._channel.send(report, 0)
        for rank, message in self._done.items():
            self._channel.send({**message, "rank": rank}, 0)

    def _check(self, heard: float) -> None:
        if time.monotonic() - heard > self._channel.timeout:
            msg = (
                f"rank {self._channel.rank} waited {self._channel.timeout:g} s for its workers, "
                f"the ranks {', '.join(map(str, self._group.workers))}"
            )
            raise OperationTimeout(msg)
