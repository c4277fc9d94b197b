"""What the ranks of a training do, from looking at their input to the end.

Both kinds first prepare: they look at what they were given and make their models, and tell each
other. So what is wrong is known to all before training begins, and raised by all.
"""

import copy
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from multiverso.learn._centre import Centre
from multiverso.learn._channel import Channel, Message
from multiverso.learn._clockwork import Clockwork, chrome_trace
from multiverso.learn._errors import InputError, first_line
from multiverso.learn._history import write_json
from multiverso.learn._worker import ChannelLink, StoppedError, Worker

if TYPE_CHECKING:
    from multiverso.learn.manager import MPIManager

__all__ = ["MasterRank", "WorkerRank", "share"]

_log = logging.getLogger("multiverso")


class _Rank:
    """What both kinds of ranks do to begin with."""

    def __init__(self, manager: "MPIManager", channel: Channel) -> None:
        self.manager = manager
        self.channel = channel
        self.workers = max(1, channel.size - 1)
        self.clockwork = Clockwork(manager.profile is not None)

    def training_replica(self, worker: int) -> Any:
        """Return worker number `worker`'s replica; its data are in `self.data` afterwards."""
        from multiverso.learn.replicas import training_replica

        manager = self.manager
        self.data = copy.copy(manager.data)
        self.data.set_file_names(share(manager.train_list, worker, self.workers))
        sample = next(iter(self.data.generate_data()), None)
        if sample is None:
            msg = f"worker {worker}: expected a batch from {self.data.file_names}, received none"
            raise InputError(msg)
        _seed(manager.seed, worker)
        return training_replica(manager.model_builder.build_model(), manager.algo, sample)

    def worker(self, replica: Any, centre: Centre, link: Any) -> Worker:
        """Return the worker of this rank."""
        manager = self.manager
        return Worker(
            replica,
            centre,
            self.data,
            link,
            self.clockwork,
            sync_every=manager.algo.sync_every,
            local_steps=manager.algo.local_steps,
            synchronous=manager.synchronous,
            checkpoints=manager.checkpoint,
        )

    def centre(self, replica: Any) -> tuple[Centre, range]:
        """Return this rank's side of the tables, and the epochs to come.

        Raises
        ------
        InputError
            On all ranks, if what is to be restored cannot be.

        """
        manager = self.manager
        centre = Centre(manager.algo, replica, self.workers, manager.synchronous, self.clockwork)
        if manager.restore is None:
            return centre, range(manager.num_epochs)
        done = centre.load(manager.restore)
        if done >= manager.num_epochs:
            msg = (
                f"cannot restore {manager.restore}: expected a checkpoint before epoch "
                f"{manager.num_epochs}, the last one, received one after epoch {done}"
            )
            raise InputError(msg)
        return centre, range(done, manager.num_epochs)


class WorkerRank(_Rank):
    """A rank that only trains."""

    def prepare(self) -> None:
        """Make the replica, and wait until all ranks have one."""
        try:
            self.replica = self.training_replica(self.channel.rank - 1)
        except Exception as error:
            self.channel.send(_failure(error), 0)
        else:
            self.channel.send({"kind": "ready"}, 0)
        order = self.channel.wait("all ranks to make their models")[1]
        if "failed" in order:
            raise InputError(order["failed"]) if order["input"] else StoppedError(order["failed"])

    def train(self, joined: Any) -> None:
        """Train until the master says that it is over."""
        try:
            centre, epochs = self.centre(self.replica)
            worker = self.worker(self.replica, centre, ChannelLink(self.channel))
            worker.train(epochs)
            joined.finish()
            worker.wait_for_end()
        except StoppedError:
            raise
        except Exception as error:
            self.channel.send(_failure(error), 0)
            raise


class MasterRank(_Rank):
    """The rank that validates, and that trains too if it is alone."""

    def prepare(self) -> None:
        """Look at all that was given before training, make the model, and wait for all workers."""
        failure: Message | None = None
        raised: Exception | None = None
        try:
            self._prepare()
        except Exception as error:
            failure, raised = _failure(error), error
        for _ in range(self.channel.size - 1):
            rank, message = self.channel.wait("all workers to make their models")
            if message["kind"] == "failed" and failure is None:
                failure = {**message, "failed": f"rank {rank}: {message['failed']}"}
        if failure is None:
            self.channel.send_to_workers({"kind": "ready"})
            return
        self.channel.send_to_workers(failure)
        if raised is not None:
            raise raised
        raise InputError(failure["failed"]) if failure["input"] else StoppedError(failure["failed"])

    def _prepare(self) -> None:
        manager = self.manager
        files = len(manager.train_list)
        if files < self.workers:
            msg = (
                f"expected a file or more for each of the {self.workers} workers, received {files} "
                f"files for training"
            )
            raise InputError(msg)
        manager.data.check([*manager.train_list, *manager.val_list])
        every = copy.copy(manager.data)
        every.set_file_names(manager.train_list)
        self.samples = every.count_data()
        from multiverso.learn.replicas import validation_replica

        _seed(manager.seed, 0)
        model = manager.model_builder.build_model()
        self.validation = copy.copy(manager.data) if manager.val_list else None
        if self.validation is not None:
            self.validation.set_file_names(manager.val_list)
            every = self.validation
        sample = next(iter(every.generate_data()), None)
        if sample is None:
            msg = f"expected a batch from {every.file_names}, received none"
            raise InputError(msg)
        self.replica = validation_replica(model, manager.algo, sample)
        if self.channel.size == 1:
            self.trained = self.training_replica(0)

    def train(self, joined: Any) -> dict[str, list[float | None]]:
        """Be the master, and the worker too if alone; return the metrics."""
        from multiverso.learn._master import Master

        manager = self.manager
        alone = self.channel.size == 1
        link = _LocalLink()
        try:
            centre, epochs = self.centre(self.replica)
            master = Master(
                self.replica,
                centre,
                manager.algo,
                self.validation,
                manager.callbacks,
                epochs,
                self.workers,
                self.samples,
                manager.synchronous,
                link.give if alone else self.channel.send_to_workers,
                self._saver(centre, epochs),
            )
            if alone:
                self._train_alone(master, centre, link, epochs)
            else:
                joined.finish()  # in lock-step the rounds are the workers'
                self._lead(master)
            history = master.end()
        except Exception as error:
            self.channel.send_to_workers(_failure(error))
            raise
        manager.model, manager.outcome = self.replica.model, master.history
        if manager.profile is not None:
            write_json(manager.profile, chrome_trace(master.events))
        self.channel.send_to_workers({"end": True})
        return history

    def _lead(self, master: Any) -> None:
        master.begin()
        while not master.over:
            rank, message = self.channel.wait("news of the workers")
            if message["kind"] == "failed":
                text = f"rank {rank}: {message['failed']}"
                raise InputError(text) if message["input"] else StoppedError(text)
            master.take(rank, message)

    def _saver(self, centre: Centre, epochs: range) -> Callable[[int, bool], None] | None:
        """Return what saves after an epoch, if it is its turn or the last one."""
        folder, every = self.manager.checkpoint, self.manager.checkpoint_interval
        if folder is None:
            return None

        def save(done: int, last: bool) -> None:
            if last or (done - epochs.start) % every == 0:
                self.channel.send_to_workers({"save": done})
                centre.save(folder, done)

        return save

    def _train_alone(self, master: Any, centre: Centre, link: "_LocalLink", epochs: range) -> None:
        own = centre.beside(self.trained)
        link.take = lambda message: master.take(0, message)
        master.begin()
        self.worker(self.trained, own, link).train(epochs)
        self.trained.finish()


class _LocalLink:
    """A line to a master in this process."""

    def __init__(self) -> None:
        self.take: Callable[[Message], None] = lambda message: None
        self._orders: deque[Message] = deque()

    def give(self, order: Message) -> None:
        """Give an order to the worker."""
        self._orders.append(order)

    def report(self, message: Message) -> None:
        """See `Link`."""
        self.take(message)

    def order(self) -> Message | None:
        """See `Link`."""
        return self._orders.popleft() if self._orders else None

    def next_order(self) -> Message:
        """See `Link`."""
        return self._orders.popleft()


def share(files: Sequence[str], worker: int, workers: int) -> list[str]:
    """Return the stretch of `files` that is a worker's; the first ones get one more if need be."""
    each, more = divmod(len(files), workers)
    begin = worker * each + min(worker, more)
    return list(files[begin : begin + each + (worker < more)])


def _failure(error: Exception) -> Message:
    expected = isinstance(error, InputError)
    if not expected:
        _log.debug("this rank failed", exc_info=error)
    text = first_line(error)
    # Of another rank's error the name is in the text.
    as_it_is = isinstance(error, InputError | StoppedError)
    return {
        "kind": "failed",
        "failed": text if as_it_is else f"{type(error).__name__}: {text}",
        "input": expected,
    }


def _seed(seed: int | None, worker: int) -> None:
    if seed is not None:
        import keras

        keras.utils.set_random_seed((seed + worker) % 2**32)
