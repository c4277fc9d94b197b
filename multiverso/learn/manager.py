"""`MPIManager`, which trains a model on all ranks of a job."""

import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from multiverso._local.cores import amount
from multiverso._native import places, supported
from multiverso._native.arguments import flag, integer
from multiverso._session import Session
from multiverso._session.options import START_TIMEOUT, limits
from multiverso.learn._history import History
from multiverso.learn._input import InputError, as_input_error, names_of
from multiverso.learn._messages import TIMEOUT, agreement, share, training_session
from multiverso.learn._options import condition, stopping_callbacks, warn_of_effects
from multiverso.learn._tables import TrainingTables
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.model import ModelBuilder

__all__ = ["MPIManager"]

_log = logging.getLogger("multiverso")


class MPIManager:
    """Trains a model on all ranks. The constructor only keeps arguments; `train` is collective.

    Rank 0 is the master: it validates, calls the callbacks and keeps the history. The other ranks
    are the workers and share the training files. A single rank has both roles. The ranks are those
    of `multiverso.init`, whatever has started them: mpirun, ``multiverso run``, or torchrun.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The ranks of the training, as for `multiverso.init`; None means all ranks of the job, or
        this process alone.
    data : Data
        The object that makes batches of the files.
    algo : Algo
        The optimizer, the loss, and the options of the exchanges.
    model_builder : ModelBuilder
        The object that makes the model on the master and the workers, with the master's weights.
    num_epochs : int
        Number of passes over the training files.
    train_list : iterable of str
        Files for training, at least one for each worker. A worker gets a contiguous part of the
        list.
    val_list : iterable of str, optional
        Files for validation; without files there is no validation.
    callbacks : list of keras.callbacks.Callback, optional
        Callbacks that the master calls with the current model, before and after training, each
        epoch and each validation. A learning rate that a callback sets applies to all workers.
    num_masters, num_processes, verbose, monitor, thread_validation, worker_callbacks : optional
        Accepted for programs of mpi_learn, without an effect, which a line in the log says.
    synchronous : bool, optional
        With True, workers run in lock-step, each update uses the mean of their gradients, and two
        runs with the same `seed` are bitwise identical. With False, each runs at its speed.
    seed : int, optional
        The seed of Keras' random numbers; worker number w uses ``seed + w``.
    profile : path, optional
        File for a trace of all workers, for Chrome or Perfetto.
    checkpoint : path, optional
        A folder, visible on all nodes, for the last two checkpoints of the parameters, running
        means and the state of the optimizer.
    checkpoint_interval : int, optional
        Epochs between two checkpoints; another checkpoint is saved at the end.
    restore : path, optional
        A folder with checkpoints of the same model and optimizer. Training resumes after the epoch
        of the last checkpoint. The number of workers may differ.
    timeout : float or None, optional
        The longest time that a rank waits for other ranks at any point, in seconds, by default an
        hour; None for no limit.
    start_timeout : float or None, optional
        The same for ranks of which nothing has been heard, as in `multiverso.init`.
    early_stopping, target_metric : str or tuple, optional
        When to stop, as the options of ``multiverso-learn train``: "val_loss,<,4" after 4 epochs
        without a lower one; "val_accuracy,>,0.9" when it is above.
    custom_objects : dict, optional
        The same as of the `model_builder`, as in mpi_learn.

    Attributes
    ----------
    model : keras.Model or None
        The trained model, on the master after `train`.
    outcome : History or None
        The complete history, on the master after `train`.

    Raises
    ------
    InputError
        If an argument has an invalid value.

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
        checkpoint: str | Path | None = None,
        checkpoint_interval: int = 1,
        restore: str | Path | None = None,
        timeout: float | None = TIMEOUT,
        start_timeout: float | None = START_TIMEOUT,
        early_stopping: Any = None,
        target_metric: Any = None,
        custom_objects: dict[str, Any] | None = None,
        num_processes: int | None = None,
        verbose: Any = False,
        monitor: bool = False,
        thread_validation: bool = False,
        worker_callbacks: Sequence[Any] = (),
    ) -> None:
        self._without_effect = {
            **{"num_masters": num_masters, "num_processes": num_processes, "verbose": verbose},
            **{"monitor": monitor, "thread_validation": thread_validation},
            "worker_callbacks": tuple(worker_callbacks or ()),
        }
        self._stops_at = condition("early_stopping (--early-stopping)", early_stopping, int)
        self._target = condition("target_metric (--target-metric)", target_metric, float)
        if custom_objects:
            own = getattr(model_builder, "custom_objects", None) or {}
            vars(model_builder)["custom_objects"] = {**custom_objects, **own}
        with as_input_error():
            if num_processes is not None and integer(num_processes, "num_processes", 1) > 1:
                raise InputError(
                    "num_processes (--processes): expected 1, because each worker is one process, "
                    f"received {num_processes}; start more ranks"
                )
            self.num_epochs = integer(num_epochs, "num_epochs", 1)
            self.num_masters = integer(num_masters, "num_masters", 1)
            self.checkpoint_interval = integer(checkpoint_interval, "checkpoint_interval", 1)
            self.synchronous = flag(synchronous, "synchronous")
            flag(monitor, "monitor")
            flag(thread_validation, "thread_validation")
            self.train_list = names_of(train_list, "train_list")
            self.val_list = [] if val_list is None else names_of(val_list, "val_list")
            self.timeout, self.start_timeout = limits(timeout, start_timeout)
        self.comm = comm
        self.data = data
        self.algo = algo
        self.model_builder = model_builder
        self.callbacks = list(callbacks or ())
        self.seed = seed
        with as_input_error():
            self.profile = _path(profile, "profile")
            self.checkpoint = _path(checkpoint, "checkpoint")
            self.restore = _path(restore, "restore")
        self.model: Any = None
        self.outcome: History | None = None

    @property
    def process(self) -> Any:
        """What mpi_learn's programs call on rank 0 alone."""
        msg = "MPIManager.process: call manager.train() on all ranks, not on rank 0 alone"
        raise AttributeError(f"{msg}; then manager.outcome has the history")

    def train(self) -> dict[str, list[float | None]] | None:
        """Train. Collective: all ranks call it, and return when training is over.

        Returns
        -------
        dict of str to list of float, or None
            The metrics of each epoch by name on the master, with ``val_...`` for those of the
            validation; None on the other ranks.

        Raises
        ------
        InputError
            On all ranks, if the model, a file, or an option cannot be used.
        RuntimeError
            If another rank has failed for another reason. A rank that fails raises its own error.
        MultiversoError
            If a rank is lost or does not respond in time. `PeerLostError` is a RuntimeError, too.

        """
        limits_of_waits = self.timeout, self.start_timeout
        with training_session(self.synchronous, self.comm, *limits_of_waits) as session:
            if session.rank == 0:
                warn_of_effects(self._without_effect)
            return self._train(session)

    def _train(self, session: Session) -> dict[str, list[float | None]] | None:
        """Train in a session; return the metrics on the master."""
        num_workers = max(session.size - 1, 1)
        is_master = session.rank == 0
        is_worker = not is_master or session.size == 1
        number = max(session.rank - 1, 0)  # The index of this rank among the workers.
        own_files = files_of_worker(self.train_list, number, num_workers)
        # Files are checked before frameworks are imported, which takes long.
        with agreement():
            with as_input_error():
                if self.checkpoint is not None:
                    places.writable_folder(self.checkpoint, "checkpoint")
                if self.profile is not None and is_master:
                    places.writable_file(self.profile, "profile")
            require_optimizer(self.algo, session.features())
            if len(self.train_list) < num_workers:
                raise InputError(
                    f"expected a file or more for each of the {num_workers} workers, received "
                    f"{amount(len(self.train_list), 'file')} for training"
                )
            self.data.check([*self.train_list, *self.val_list] if is_master else own_files)
        with agreement():
            import multiverso.learn._replica as replicas  # The error names a missing package.
            from multiverso.learn._coordinator import Coordinator
            from multiverso.learn._worker import Worker

            replicas.seed_random(self.seed, number)
            own_passes = replicas.Passes(self, own_files) if is_worker else None
            if is_master:
                self.callbacks += stopping_callbacks(self._stops_at, self._target)
                self._stops_at = self._target = None
            master = Coordinator(self, own_passes, num_workers) if is_master else None
            worker = None if own_passes is None else Worker(self, own_passes, num_workers)
        role = master or worker
        assert role is not None
        tables = TrainingTables(self, role.replica)
        epochs = tables.restore()
        if master is not None:
            master.begin(tables, epochs)
        totals = None
        if worker is not None:
            totals = worker.train(tables, epochs, master)
        elif master is not None:
            session.finish()  # Only the workers take part in lock-step rounds.
            master.coordinate()
        totals_of_ranks = share(totals)
        if master is None:
            return None
        self.outcome = master.end(totals_of_ranks)
        self.model = master.replica.model
        return self.outcome.metrics


def require_optimizer(algo: Algo, features: Collection[str]) -> None:
    """Raise InputError if the server cannot run the optimizer in a session with these features."""
    optimizer = algo.optimizer
    if algo.elastic or optimizer is None or not optimizer.compensates_delays:
        return
    refusal = supported.refusal_of("dcasgd", *features)
    if refusal is not None:
        raise InputError(refusal.sentence)


def files_of_worker(files: list[str], worker: int, num_workers: int) -> list[str]:
    """Return a worker's contiguous share of the files; shares differ by one file at most."""
    share_size, remainder = divmod(len(files), num_workers)
    begin = worker * share_size + min(worker, remainder)
    return files[begin : begin + share_size + (worker < remainder)]


def _path(place: Any, what: str) -> Path | None:
    return None if place is None else Path(places.path(place, what))
