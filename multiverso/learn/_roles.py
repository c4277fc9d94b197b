"""The roles of ranks in a training: master, sub-master and worker.

Before training, the master and each worker check their input and make their models. If one rank
fails, each rank raises an error.
"""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from multiverso import api
from multiverso.learn import _messages as messages
from multiverso.learn._activity import chrome_trace
from multiverso.learn._agreement import agreement
from multiverso.learn._exchange import GroupExchange, ParameterExchange
from multiverso.learn._history import History, write_json
from multiverso.learn._input import InputError
from multiverso.learn._messages import Failure, Message, StoppedError, WorkerDone
from multiverso.learn._mpi import LocalChannel
from multiverso.learn._training import RankContext
from multiverso.learn._training_loop import TrainingLoop
from multiverso.learn._training_tables import ModelSize, TrainingTables
from multiverso.learn.data import Data

Metrics = dict[str, list[float | None]]


class Role:
    """What one rank does in a training; `model` and `outcome` are set on the master at the end."""

    model: Any = None
    outcome: History | None = None

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self.training = context.training
        self.channel = context.channel
        self.timer = context.timer

    def prepare(self) -> None:
        """Check the input and make the model; raise an error on all ranks if one has failed."""
        with agreement(self.channel, "make its model") as sizes:
            sizes.value = self._prepare()
        self.size = ModelSize(**sizes.values[0])

    def _prepare(self) -> dict[str, Any] | None:
        """Do the part of `prepare` that is of this role; return the size of a master's model."""
        raise NotImplementedError

    def train(self, session: Any) -> Metrics | None:
        """Play the role until training is over; return the metrics on the master."""
        try:
            return self._train(session)
        except Exception as error:
            self.report_failure(error)
            raise

    def _train(self, session: Any) -> Metrics | None:
        raise NotImplementedError

    def data_with(self, files: Sequence[str]) -> Data:
        """Return a copy of the data object, which reads `files`."""
        data = copy.copy(self.training.data)
        data.set_file_names(files)
        return data

    def training_replica(self, worker: int) -> tuple[Any, Data]:
        """Return the replica and the data of worker number `worker`."""
        from multiverso.learn.replicas import training_replica

        training = self.training
        num_workers = len(self.context.layout.workers)
        data = self.data_with(files_of_worker(training.train_list, worker, num_workers))
        batch = _first_batch(data, f"worker {worker}: ")
        _seed(training.seed, worker)
        return training_replica(training.model_builder.build_model(), training.algo, batch), data

    def make_tables(self, model: ModelSize, replica: Any = None) -> tuple[TrainingTables, range]:
        """Create or restore the tables; return the tables and the epochs to train. Collective.

        Raises InputError on all ranks if the checkpoint cannot be restored.
        """
        training = self.training
        initial = (None, None) if replica is None else (replica.weights, replica.state)
        tables = TrainingTables(training.algo, model, self.context.layout, *initial)
        trained = 0 if training.restore is None else tables.load(training.restore)
        if trained >= training.num_epochs:
            raise InputError(
                f"cannot restore {training.restore}: expected a checkpoint before epoch "
                f"{training.num_epochs}, the last one, received one after epoch {trained}"
            )
        return tables, range(trained, training.num_epochs)

    def make_exchange(self, replica: Any) -> tuple[ParameterExchange, range]:
        """Create the tables; return the exchange of `replica` and the epochs to train. Collective.

        With groups the call waits until the parameters of every group are set.
        """
        training = self.training
        tables, epochs = self.make_tables(_model_size(replica), replica)
        if training.restore is not None and not training.algo.local_steps:
            # The table has restored its learning rate. Callbacks read that of the model.
            replica.set_learning_rate(tables.optimizer_tables[0].options["learning_rate"])
        if self.context.layout.groups:
            api.barrier()
        return ParameterExchange(self.context, replica, tables), epochs

    def report_failure(self, error: Exception) -> None:
        """Tell the master that this rank has failed, unless the master has ended the training."""
        if not isinstance(error, StoppedError):
            self.channel.send(Failure.of(error), 0)


class WorkerRole(Role):
    """A rank that only trains."""

    def _prepare(self) -> None:
        worker = self.context.layout.workers.index(self.channel.rank)
        self.replica, self.data = self.training_replica(worker)

    def _train(self, session: Any) -> None:
        exchange, epochs = self.make_exchange(self.replica)
        loop = TrainingLoop(self.context, self.replica, exchange, self.data)
        loop.train(epochs)
        session.finish()
        loop.wait_for_end()


class SubMasterRole(Role):
    """A rank without a model that exchanges its group's parameters with those of all workers.

    It exchanges after every `sync_every` updates of the group, before a checkpoint, and when all
    workers of the group have told it that they are done. Only after this last exchange does it tell
    the master, so that the master then saves complete parameters.
    """

    def _prepare(self) -> None:
        """Do nothing, as a sub-master has no model."""

    def _train(self, session: Any) -> None:
        group = self.context.group
        assert group is not None
        self.tables, _ = self.make_tables(self.size)
        self.exchange = GroupExchange(self.context, self.tables)
        self.done: list[WorkerDone] = []
        self.exchange.begin()
        api.barrier()
        self._serve(group.workers)

    def _serve(self, workers: Sequence[int]) -> None:
        ranks = ", ".join(map(str, workers))
        # Each poll also reads the counter of updates, so the first pause is longer than by default.
        backoff = self.channel.backoff(f"its workers, the ranks {ranks}", first_pause=1e-4)
        last_pending = 0
        while True:
            received = self.channel.poll()
            if received is not None and not self._handle(received[1], workers):
                return
            pending = self.exchange.pending()
            if received is not None or pending != last_pending:
                backoff.restart()
            if pending >= self.training.algo.sync_every:
                self.exchange.pass_on()
                pending = 0
            last_pending = pending
            if received is None:
                with self.timer.measure("waiting"):
                    backoff.pause()

    def _handle(self, message: Message, workers: Sequence[int]) -> bool:
        """Handle a message of the master or a worker; return False if it is `EndTraining`."""
        match message:
            case WorkerDone():
                self.done.append(message)
                if len(self.done) == len(workers):
                    self._report_done(workers)
            case Failure():
                raise message.error()
            case messages.SaveCheckpoint() if self.training.checkpoint is not None:
                self.exchange.pass_on()
                with self.timer.measure("waiting"):
                    self.tables.save(self.training.checkpoint, message.epochs)
        return not isinstance(message, messages.EndTraining)

    def _report_done(self, workers: Sequence[int]) -> None:
        self.exchange.pass_on()
        rank, timer = self.channel.rank, self.timer
        report = messages.GroupDone(
            rank, list(workers), self.exchange.exchanges, timer.seconds, timer.events
        )
        self.channel.send(report, 0)
        for done in self.done:
            self.channel.send(done, 0)


class MasterRole(Role):
    """The rank that validates and coordinates the workers; a single rank also trains."""

    def _prepare(self) -> dict[str, Any]:
        from multiverso.learn.replicas import validation_replica

        training = self.training
        num_files, num_workers = len(training.train_list), len(self.context.layout.workers)
        if num_files < num_workers:
            raise InputError(
                f"expected a file or more for each of the {num_workers} workers, received "
                f"{num_files} {'file' if num_files == 1 else 'files'} for training"
            )
        training.data.check([*training.train_list, *training.val_list])
        train_data = self.data_with(training.train_list)
        self.samples = train_data.count_data()
        self.validation = self.data_with(training.val_list) if training.val_list else None
        _seed(training.seed, 0)
        model = training.model_builder.build_model()
        batch = _first_batch(train_data if self.validation is None else self.validation)
        self.replica = validation_replica(model, training.algo, batch)
        if self.channel.size == 1:
            self.worker_replica, self.data = self.training_replica(0)
        return dataclasses.asdict(_model_size(self.replica))

    def _train(self, session: Any) -> Metrics:
        from multiverso.learn._coordinator import Coordinator

        exchange, epochs = self.make_exchange(self.replica)
        coordinator = Coordinator(
            self.context, self.replica, exchange, self.validation, self.samples, epochs
        )
        if isinstance(self.channel, LocalChannel):
            self._train_alone(self.channel, coordinator, exchange, epochs)
        else:
            session.finish()  # Only the workers take part in lock-step rounds.
            self._coordinate(coordinator)
        metrics: Metrics = coordinator.end()
        self.model, self.outcome = self.replica.model, coordinator.history
        if self.training.profile is not None:
            write_json(self.training.profile, chrome_trace(coordinator.events))
        self.channel.broadcast(messages.EndTraining())
        return metrics

    def report_failure(self, error: Exception) -> None:
        """Tell all ranks to end the training."""
        self.channel.broadcast(Failure.of(error))

    def _coordinate(self, coordinator: Any) -> None:
        coordinator.begin()
        while not coordinator.is_over:
            rank, message = self.channel.wait("a report of the workers")
            if isinstance(message, Failure):
                raise Failure(f"rank {rank}: {message.text}", message.is_input_error).error()
            coordinator.receive(rank, message)

    def _train_alone(
        self, channel: LocalChannel, coordinator: Any, exchange: ParameterExchange, epochs: range
    ) -> None:
        channel.deliver = lambda message: coordinator.receive(0, message)
        coordinator.begin()
        worker_exchange = exchange.for_replica(self.worker_replica)
        TrainingLoop(self.context, self.worker_replica, worker_exchange, self.data).train(epochs)
        self.worker_replica.finish()


def role_of(context: RankContext) -> Role:
    """Return the role of this rank."""
    rank, group = context.channel.rank, context.group
    if rank == 0:
        return MasterRole(context)
    is_submaster = group is not None and group.submaster == rank
    return SubMasterRole(context) if is_submaster else WorkerRole(context)


def files_of_worker(files: Sequence[str], worker: int, num_workers: int) -> list[str]:
    """Return a worker's contiguous share of the files; shares differ by one file at most."""
    share, remainder = divmod(len(files), num_workers)
    begin = worker * share + min(worker, remainder)
    return list(files[begin : begin + share + (worker < remainder)])


def _first_batch(data: Data, prefix: str = "") -> Any:
    batch = next(iter(data.generate_data()), None)
    if batch is None:
        raise InputError(f"{prefix}expected a batch from {data.file_names}, received none")
    return batch


def _model_size(replica: Any) -> ModelSize:
    return ModelSize(replica.weights.size, replica.state.size, replica.dtype.name)


def _seed(seed: int | None, worker: int) -> None:
    if seed is not None:
        import keras

        keras.utils.set_random_seed((seed + worker) % 2**32)
