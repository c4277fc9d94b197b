"""What the ranks of a training do, from looking at their input to the end.

Both kinds first prepare: they look at what they were given and make their models, and tell each
other. So what is wrong is known to all before training begins, and raised by all.
"""

import copy
import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from multiverso import api
from multiverso.learn._centre import Centre
from multiverso.learn._channel import Channel, Message
from multiverso.learn._clockwork import Clockwork, chrome_trace
from multiverso.learn._errors import InputError, first_line
from multiverso.learn._group_centre import GroupCentre, GroupTop
from multiverso.learn._history import History, write_json
from multiverso.learn._layout import Layout
from multiverso.learn._submaster import SubMaster
from multiverso.learn._tables import ModelSize, Tables
from multiverso.learn._training import Training
from multiverso.learn._worker import ChannelLink, StoppedError, Worker

__all__ = ["MasterRank", "SubMasterRank", "WorkerRank", "rank_of", "share"]

_log = logging.getLogger("multiverso")


class _Rank:
    """What all kinds of ranks do to begin with."""

    #: What the master has after training.
    model: Any = None
    outcome: History | None = None

    def __init__(self, training: Training, channel: Channel, layout: Layout) -> None:
        self.training = training
        self.channel = channel
        self.layout = layout
        self.workers = len(layout.workers)
        self.clockwork = Clockwork(training.profile is not None)

    def training_replica(self, worker: int) -> Any:
        """Return worker number `worker`'s replica; its data are in `self.data` afterwards."""
        from multiverso.learn.replicas import training_replica

        training = self.training
        self.data = copy.copy(training.data)
        self.data.set_file_names(share(training.train_list, worker, self.workers))
        sample = next(iter(self.data.generate_data()), None)
        if sample is None:
            msg = f"worker {worker}: expected a batch from {self.data.file_names}, received none"
            raise InputError(msg)
        _seed(training.seed, worker)
        return training_replica(training.model_builder.build_model(), training.algo, sample)

    def worker(self, replica: Any, centre: Centre, link: Any) -> Worker:
        """Return the worker of this rank."""
        training = self.training
        return Worker(
            replica,
            centre,
            self.data,
            link,
            self.clockwork,
            sync_every=training.algo.sync_every,
            local_steps=training.algo.local_steps,
            synchronous=training.synchronous,
            checkpoints=training.checkpoint,
        )

    def tables(self, model: ModelSize, replica: Any = None) -> tuple[Tables, range]:
        """Return this rank's side of the tables, and the epochs to come. Collective.

        Raises
        ------
        InputError
            On all ranks, if what is to be restored cannot be.

        """
        training = self.training
        first = (None, None) if replica is None else (replica.weights, replica.state)
        tables = Tables(training.algo, model, self.layout, *first)
        done = 0 if training.restore is None else tables.load(training.restore)
        if done >= training.num_epochs:
            msg = (
                f"cannot restore {training.restore}: expected a checkpoint before epoch "
                f"{training.num_epochs}, the last one, received one after epoch {done}"
            )
            raise InputError(msg)
        return tables, range(done, training.num_epochs)

    def centre(self, replica: Any) -> tuple[Centre, range]:
        """Return this rank's side of the tables for `replica`, and the epochs to come.

        Collective, as `tables` is. With groups it waits until all of them have their parameters.
        """
        training = self.training
        tables, epochs = self.tables(_size_of(replica), replica)
        if training.restore is not None and not training.algo.local_steps:
            replica.set_learning_rate(tables.optimised.options["learning_rate"])
        if self.layout.groups:
            api.barrier()
        group = self.layout.group_of(self.channel.rank)
        centre: Centre
        if group is None:
            centre = Centre(
                training.algo, replica, tables, self.workers, training.synchronous, self.clockwork
            )
        else:
            centre = GroupCentre(
                training.algo, replica, tables, self.workers, self.clockwork, group
            )
        return centre, epochs

    def tell_of(self, error: Exception) -> None:
        """Let the master end the training, if the error is not of its own doing."""
        if not isinstance(error, StoppedError):
            self.channel.send(_failure(error), 0)


class WorkerRank(_Rank):
    """A rank that only trains."""

    def prepare(self) -> None:
        """Make the replica, and wait until all ranks have one."""
        try:
            self.replica = self.training_replica(self.layout.number(self.channel.rank))
        except Exception as error:
            self.tell_of(error)
        else:
            self.channel.send({"kind": "ready"}, 0)
        _wait_for_all(self.channel)

    def train(self, joined: Any) -> None:
        """Train until the master says that it is over."""
        try:
            centre, epochs = self.centre(self.replica)
            group = self.layout.group_of(self.channel.rank)
            link = ChannelLink(self.channel, 0 if group is None else group.submaster)
            worker = self.worker(self.replica, centre, link)
            worker.train(epochs)
            joined.finish()
            worker.wait_for_end()
        except Exception as error:
            self.tell_of(error)
            raise


class SubMasterRank(_Rank):
    """A rank that passes on what the workers of its group learn. It needs no model."""

    def prepare(self) -> None:
        """Learn from the master how large the model is."""
        self.channel.send({"kind": "ready"}, 0)
        self.size = ModelSize(**_wait_for_all(self.channel)["model"])

    def train(self, joined: Any) -> None:
        """Look after the group until the master says that training is over."""
        training, layout = self.training, self.layout
        group = layout.group_of(self.channel.rank)
        assert group is not None
        try:
            tables, _ = self.tables(self.size)
            top = GroupTop(training.algo, tables, group, len(layout.groups), self.clockwork)
            top.begin()
            api.barrier()
            SubMaster(
                top,
                tables,
                group,
                self.channel,
                self.clockwork,
                sync_every=training.algo.sync_every,
                checkpoints=training.checkpoint,
            ).lead()
        except Exception as error:
            self.tell_of(error)
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
            model = dataclasses.asdict(_size_of(self.replica))
            self.channel.send_to_workers({"kind": "ready", "model": model})
            return
        self.channel.send_to_workers(failure)
        if raised is not None:
            raise raised
        raise InputError(failure["failed"]) if failure["input"] else StoppedError(failure["failed"])

    def _prepare(self) -> None:
        training = self.training
        files = len(training.train_list)
        if files < self.workers:
            msg = (
                f"expected a file or more for each of the {self.workers} workers, received {files} "
                f"{'file' if files == 1 else 'files'} for training"
            )
            raise InputError(msg)
        training.data.check([*training.train_list, *training.val_list])
        every = copy.copy(training.data)
        every.set_file_names(training.train_list)
        self.samples = every.count_data()
        from multiverso.learn.replicas import validation_replica

        _seed(training.seed, 0)
        model = training.model_builder.build_model()
        self.validation = copy.copy(training.data) if training.val_list else None
        if self.validation is not None:
            self.validation.set_file_names(training.val_list)
            every = self.validation
        sample = next(iter(every.generate_data()), None)
        if sample is None:
            msg = f"expected a batch from {every.file_names}, received none"
            raise InputError(msg)
        self.replica = validation_replica(model, training.algo, sample)
        if self.channel.size == 1:
            self.trained = self.training_replica(0)

    def train(self, joined: Any) -> dict[str, list[float | None]]:
        """Be the master, and the worker too if alone; return the metrics."""
        from multiverso.learn._master import Master

        training = self.training
        alone = self.channel.size == 1
        link = _LocalLink()
        try:
            centre, epochs = self.centre(self.replica)
            master = Master(
                self.replica,
                centre,
                training.algo,
                self.validation,
                training.callbacks,
                epochs,
                self.workers,
                self.samples,
                training.synchronous,
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
        self.model, self.outcome = self.replica.model, master.history
        if training.profile is not None:
            write_json(training.profile, chrome_trace(master.events))
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
        folder, every = self.training.checkpoint, self.training.checkpoint_interval
        if folder is None:
            return None

        def save(done: int, last: bool) -> None:
            if last or (done - epochs.start) % every == 0:
                self.channel.send_to_workers({"save": done})
                centre.tables.save(folder, done)

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


def rank_of(training: Training, channel: Channel, layout: Layout) -> Any:
    """Return what this rank is."""
    if channel.rank == 0:
        return MasterRank(training, channel, layout)
    kind = SubMasterRank if layout.is_submaster(channel.rank) else WorkerRank
    return kind(training, channel, layout)


def _size_of(replica: Any) -> ModelSize:
    """Return how large the tables of a replica are."""
    return ModelSize(replica.weights.size, replica.state.size, replica.dtype.name)


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


def _wait_for_all(channel: Channel) -> Message:
    """Wait for the master's word that all ranks are ready, and return it."""
    order = channel.wait("all ranks to make their models")[1]
    if "failed" in order:
        raise InputError(order["failed"]) if order["input"] else StoppedError(order["failed"])
    return order


def _seed(seed: int | None, worker: int) -> None:
    if seed is not None:
        import keras

        keras.utils.set_random_seed((seed + worker) % 2**32)
