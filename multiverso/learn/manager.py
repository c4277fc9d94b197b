"""The training of a model by all ranks of an MPI job: `MPIManager`."""

import copy
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from multiverso import _launch
from multiverso.api import session
from multiverso.learn._centre import Centre
from multiverso.learn._channel import Channel, Message
from multiverso.learn._clockwork import Clockwork, chrome_trace
from multiverso.learn._errors import InputError, first_line
from multiverso.learn._history import History, write_json
from multiverso.learn._worker import ChannelLink, StoppedError, Worker
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.model import ModelBuilder

__all__ = ["MPIManager", "share"]

_log = logging.getLogger("multiverso")


class MPIManager:
    """Trains a model on all ranks. Making one only keeps the arguments; `train` is collective.

    Rank 0 is the master: it validates, calls the callbacks and keeps the history; the other ranks
    are the workers and share the training files among them. If there is one rank, it does both.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The ranks; None stands for all of the job, or for this process alone.
    data : Data
        How batches are made of files.
    algo : Algo
        The optimiser, the loss, and how workers exchange.
    model_builder : ModelBuilder
        Makes the model on every rank; the master's weights count.
    num_epochs : int
        How often to go over the training files.
    train_list : iterable of str
        Files for training, at least one for each worker. A worker gets a stretch of the list.
    val_list : iterable of str, optional
        Files for validation; without any there is none.
    callbacks : list of keras.callbacks.Callback, optional
        For the master: called at the beginning and the end of training, of epochs and of
        validations with the model as it is then. A learning rate that they set holds for all.
    num_masters : int, optional
        1; there are no more.
    synchronous : bool, optional
        True: workers go in lock-step, each update is made with the mean of their gradients, and two
        runs with the same `seed` are equal to the bit. False: each worker goes at its own speed.
    seed : int, optional
        Of Keras' random numbers, on the worker with the number w that of ``seed + w``.
    profile : path, optional
        Where the master writes a trace of what each worker did when, to be opened with Chrome or
        Perfetto.
    timeout : float, optional
        Seconds that a rank waits for others at most, wherever it does.

    Attributes
    ----------
    model : keras.Model or None
        On the master, after `train`: the trained model.
    outcome : History or None
        On the master, after `train`: all that is known of it.

    Raises
    ------
    InputError
        If an argument cannot be what it is.

    Examples
    --------
    >>> import keras
    >>> from multiverso.learn import Algo, H5Data, ModelFromJson, MPIManager
    >>> manager = MPIManager(
    ...     None,
    ...     H5Data(batch_size=100),
    ...     Algo("adam", loss="categorical_crossentropy"),
    ...     ModelFromJson(filename="model.json"),
    ...     num_epochs=3,
    ...     train_list=["train_0.h5", "train_1.h5"],
    ...     val_list=["test.h5"],
    ... )
    >>> history = manager.train()  # doctest: +SKIP

    """

    def __init__(
        self,
        comm: Any,
        data: Data,
        algo: Algo,
        model_builder: ModelBuilder,
        num_epochs: int,
        train_list: Iterable[str],
        val_list: Iterable[str] | None = None,
        callbacks: Sequence[Any] | None = None,
        num_masters: int = 1,
        synchronous: bool = False,
        *,
        seed: int | None = None,
        profile: str | Path | None = None,
        timeout: float = 3600.0,
    ) -> None:
        if isinstance(num_epochs, bool) or not hasattr(num_epochs, "__index__") or num_epochs < 1:
            msg = f"num_epochs: expected an integer from 1 on, received {num_epochs!r}"
            raise InputError(msg)
        if num_masters != 1:
            msg = f"num_masters: expected 1, received {num_masters!r}"
            raise InputError(msg)
        self.comm = comm
        self.data = data
        self.algo = algo
        self.model_builder = model_builder
        self.num_epochs = int(num_epochs)
        self.train_list = [str(name) for name in train_list]
        self.val_list = [str(name) for name in val_list or ()]
        self.callbacks = list(callbacks or ())
        self.synchronous = bool(synchronous)
        self.seed = seed
        self.profile = None if profile is None else Path(profile)
        self.timeout = float(timeout)
        self.model: Any = None
        self.outcome: History | None = None

    def train(self) -> dict[str, list[float | None]] | None:
        """Train. Collective: all ranks call it, and return when training is over.

        Returns
        -------
        dict of str to list of float, or None
            On the master the metrics of each epoch by name, those of validation as ``val_...``; on
            the other ranks None.

        Raises
        ------
        InputError
            On all ranks: if the model, a file, or an option cannot be used.
        RuntimeError
            On all ranks but the one that raises the original error: if a rank fails otherwise.
        MultiversoError
            If a rank is lost or late.

        """
        comm = self.comm
        if comm is None:
            found = _launch.find_communicator()
            comm = None if found is None else found.handle
        channel = Channel(comm, self.timeout)
        try:
            run = _Master(self, channel) if channel.rank == 0 else _Worker(self, channel)
            run.prepare()
            with session(
                sync=self.synchronous, comm=comm if channel.size > 1 else None, timeout=self.timeout
            ) as joined:
                history = run.train(joined)
        except StoppedError as error:
            raise RuntimeError(str(error)) from None
        channel.close()
        return history


class _Run:
    """What both kinds of ranks do to begin with."""

    def __init__(self, manager: MPIManager, channel: Channel) -> None:
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
            elastic=manager.algo.elastic,
            synchronous=manager.synchronous,
        )

    def centre(self, replica: Any) -> Centre:
        """Return this rank's side of the tables."""
        manager = self.manager
        return Centre(manager.algo, replica, self.workers, manager.synchronous, self.clockwork)


class _Worker(_Run):
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
            worker = self.worker(self.replica, self.centre(self.replica), ChannelLink(self.channel))
            worker.train(range(self.manager.num_epochs))
            joined.finish()
            worker.wait_for_end()
        except StoppedError:
            raise
        except Exception as error:
            self.channel.send(_failure(error), 0)
            raise


class _Master(_Run):
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
            centre = self.centre(self.replica)
            master = Master(
                self.replica,
                centre,
                manager.algo,
                self.validation,
                manager.callbacks,
                range(manager.num_epochs),
                self.workers,
                self.samples,
                manager.synchronous and not alone,
                link.give if alone else self.channel.send_to_workers,
            )
            if alone:
                self._train_alone(master, centre, link)
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

    def _train_alone(self, master: Any, centre: Centre, link: "_LocalLink") -> None:
        own = centre.beside(self.trained)
        link.take = lambda message: master.take(0, message)
        master.begin()
        self.worker(self.trained, own, link).train(range(self.manager.num_epochs))
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
    return {
        "kind": "failed",
        "failed": text if expected else f"{type(error).__name__}: {text}",
        "input": expected,
    }


def _seed(seed: int | None, worker: int) -> None:
    if seed is not None:
        import keras

        keras.utils.set_random_seed((seed + worker) % 2**32)
