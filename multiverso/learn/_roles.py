"""What each rank does in a training: the master, rank 0, validates; the others are the workers.

A single rank is both. Before training, each rank checks its files and makes its model. If one rank
fails, each rank raises an error.
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from multiverso._session import Session
from multiverso.learn._activity import ActivityTimer, chrome_trace
from multiverso.learn._agreement import agreement, share
from multiverso.learn._exchange import ParameterExchange, TrainingTables
from multiverso.learn._history import History, write_json
from multiverso.learn._input import InputError
from multiverso.learn._reports import Orders, Reports
from multiverso.learn._worker import Worker
from multiverso.learn.data import Data

if TYPE_CHECKING:
    from multiverso.learn._coordinator import Coordinator  # It would import Keras.
    from multiverso.learn.manager import MPIManager


class Training:
    """The part of this rank in a training with the `settings` of a manager.

    Attributes
    ----------
    model : keras.Model or None
        The trained model, on the master at the end.
    history : History or None
        The history, on the master at the end.

    """

    model: Any = None
    history: History | None = None

    def __init__(self, settings: "MPIManager", session: Session) -> None:
        self._settings = settings
        self._session = session
        self._num_workers = max(session.size - 1, 1)
        self._is_master = session.rank == 0
        #: The index of this rank among the workers, or -1 for a master beside workers.
        self._worker = session.rank - 1 if session.size > 1 else 0
        self._is_worker = self._worker >= 0

    def run(self) -> None:
        """Train until the end, together with the other ranks. Collective."""
        # Files are checked before frameworks are imported, which takes long.
        with agreement():
            self._check_files()
        with agreement():
            if self._is_master:
                self._make_validation()
            if self._is_worker:
                self._make_worker()
        self._tables = TrainingTables(self._settings.algo, self._replica)
        epochs = self._epochs()
        coordinator, totals = None, None
        if self._is_master:
            coordinator = self._begin_coordinator(epochs)
        if self._is_worker:
            totals = self._train(coordinator, epochs)
        elif coordinator is not None:
            self._session.finish()  # Only the workers take part in lock-step rounds.
            coordinator.coordinate()
        if coordinator is not None:
            coordinator.end()
            self.model, self.history = self._replica.model, coordinator.history
        self._record(share(totals))

    def _check_files(self) -> None:
        """Raise InputError if this rank cannot use its files."""
        settings, num_files = self._settings, len(self._settings.train_list)
        if num_files < self._num_workers:
            raise InputError(
                f"expected a file or more for each of the {self._num_workers} workers, received "
                f"{num_files} {'file' if num_files == 1 else 'files'} for training"
            )
        files = [*settings.train_list, *settings.val_list]
        settings.data.check(files if self._is_master else self._own_files())

    def _own_files(self) -> list[str]:
        return files_of_worker(self._settings.train_list, self._worker, self._num_workers)

    def _make_validation(self) -> None:
        """Make the master's copy of the model, and find out about its data."""
        from multiverso.learn._replica import validation_replica

        settings = self._settings
        train_data = self._data_with(settings.train_list)
        self._samples = train_data.count_data()
        self._validation = self._data_with(settings.val_list) if settings.val_list else None
        _seed(settings.seed, 0)
        model = settings.model_builder.build_model()
        batch = _first_batch(train_data if self._validation is None else self._validation)
        self._replica = validation_replica(model, settings.algo, batch)

    def _make_worker(self) -> None:
        """Make the copy of the model that this worker trains."""
        from multiverso.learn._replica import training_replica

        settings = self._settings
        self._data = self._data_with(self._own_files())
        batch = _first_batch(self._data, f"worker {self._worker}: ")
        _seed(settings.seed, self._worker)
        model = settings.model_builder.build_model()
        self._trained = training_replica(model, settings.algo, batch)
        if not self._is_master:
            self._replica = self._trained

    def _data_with(self, files: Sequence[str]) -> Data:
        """Return a copy of the data object, which reads `files`."""
        data = copy.copy(self._settings.data)
        data.set_file_names(files)
        return data

    def _epochs(self) -> range:
        """Restore the tables, if asked to; return the epochs to train. Collective.

        Raises InputError on all ranks if the checkpoint cannot be restored.
        """
        folder, num_epochs = self._settings.restore, self._settings.num_epochs
        trained = 0 if folder is None else self._tables.load(folder)
        if trained >= num_epochs:
            raise InputError(
                f"cannot restore {folder}: expected a checkpoint before epoch {num_epochs}, the "
                f"last one, received one after epoch {trained}"
            )
        if folder is not None and self._is_master and not self._settings.algo.local_steps:
            # The table has restored its learning rate. Callbacks read that of the model.
            rate = self._tables.parameters[0].options["learning_rate"]
            self._replica.set_learning_rate(rate)
        return range(trained, num_epochs)

    def _begin_coordinator(self, epochs: range) -> "Coordinator":
        from multiverso.learn._coordinator import Coordinator

        coordinator = Coordinator(
            self._settings,
            self._num_workers,
            self._replica,
            self._tables,
            self._validation,
            self._samples,
            epochs,
        )
        coordinator.begin()
        return coordinator

    def _train(self, coordinator: "Coordinator | None", epochs: range) -> dict[str, Any]:
        """Train as a worker; return its totals."""
        synchronous = self._settings.synchronous
        exchange = ParameterExchange(
            self._settings.algo,
            synchronous,
            self._num_workers,
            self._trained,
            self._tables,
            ActivityTimer(trace=self._settings.profile is not None),
        )

        def take_turn(mine: list[dict[str, Any]]) -> Orders:
            """Share the reports of this worker with the master on another rank."""
            orders = Orders(**share(mine)[0])
            if orders.save is not None:
                with exchange.lock:
                    self._tables.save(self._settings.checkpoint, orders.save)
            return orders

        if coordinator is None:
            reports = Reports(take_turn, in_background=not synchronous)
        else:
            reports = Reports(coordinator.answer, in_background=False)
        try:
            return Worker(exchange, self._data, reports).train(epochs)
        finally:
            reports.close()

    def _record(self, totals: list[Any]) -> None:
        """Let the master record the totals of the workers."""
        if self.history is None:
            return
        totals_of_rank = {rank: totals for rank, totals in enumerate(totals) if totals is not None}
        for rank, totals_of_worker in totals_of_rank.items():
            self.history.add_worker(rank, totals_of_worker)
        if self._settings.profile is not None:
            trace = {rank: totals["events"] for rank, totals in totals_of_rank.items()}
            write_json(self._settings.profile, chrome_trace(trace))


def files_of_worker(files: Sequence[str], worker: int, num_workers: int) -> list[str]:
    """Return a worker's contiguous share of the files; shares differ by one file at most."""
    share_size, remainder = divmod(len(files), num_workers)
    begin = worker * share_size + min(worker, remainder)
    return list(files[begin : begin + share_size + (worker < remainder)])


def _first_batch(data: Data, prefix: str = "") -> Any:
    batch = next(iter(data.generate_data()), None)
    if batch is None:
        raise InputError(f"{prefix}expected a batch from {data.file_names}, received none")
    return batch


def _seed(seed: int | None, worker: int) -> None:
    if seed is not None:
        import keras

        keras.utils.set_random_seed((seed + worker) % 2**32)
