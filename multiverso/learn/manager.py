"""The training of a model by all ranks of an MPI job: `MPIManager`."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from multiverso._mpi import communicator
from multiverso.api import session
from multiverso.learn._channel import Channel
from multiverso.learn._errors import InputError
from multiverso.learn._history import History
from multiverso.learn._layout import find_layout
from multiverso.learn._ranks import rank_of
from multiverso.learn._training import Training
from multiverso.learn._worker import StoppedError
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.model import ModelBuilder

__all__ = ["MPIManager"]


class MPIManager:
    """Trains a model on all ranks. Making one only keeps the arguments; `train` is collective.

    Rank 0 is the master: it validates, calls the callbacks and keeps the history; the other ranks
    are the workers and share the training files among them. If there is one rank, it does both.
    With `num_masters` above 1 the workers are in groups, and a rank of each is its sub-master.

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
        1, the default: all workers exchange with the parameters of all. More: the master, and so
        many sub-masters less one. Workers exchange with the parameters of their group, which the
        sub-master holds, and after every `sync_every` updates of its group the sub-master passes on
        what they have learned together. If the ranks but the master are on as many nodes as there
        are sub-masters, a group is a node; else a stretch of the ranks. Not with `synchronous`.
    synchronous : bool, optional
        True: workers go in lock-step, each update is made with the mean of their gradients, and two
        runs with the same `seed` are equal to the bit. False: each worker goes at its own speed.
    seed : int, optional
        Of Keras' random numbers, on the worker with the number w that of ``seed + w``.
    profile : path, optional
        Where the master writes a trace of what each worker did when, to be opened with Chrome or
        Perfetto.
    checkpoint : path, optional
        A folder to save parameters, running means and the state of the optimiser in, which all
        nodes see. The last two checkpoints stay.
    checkpoint_interval : int, optional
        Epochs between two checkpoints; there is one at the end, too.
    restore : path, optional
        A folder with checkpoints of the same model and optimiser, with the last of which training
        goes on, at the epoch where it was. The number of workers may be another one.
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
        checkpoint: str | Path | None = None,
        checkpoint_interval: int = 1,
        restore: str | Path | None = None,
        timeout: float = 3600.0,
    ) -> None:
        for name, number in (
            ("num_epochs", num_epochs),
            ("num_masters", num_masters),
            ("checkpoint_interval", checkpoint_interval),
        ):
            if isinstance(number, bool) or not hasattr(number, "__index__") or number < 1:
                msg = f"{name}: expected an integer from 1 on, received {number!r}"
                raise InputError(msg)
        if synchronous and num_masters > 1:
            msg = (
                f"num_masters: expected 1 in lock-step, received {num_masters}: an update is made "
                "of the gradients of all workers there, so groups would change nothing"
            )
            raise InputError(msg)
        self.comm = comm
        self.data = data
        self.algo = algo
        self.model_builder = model_builder
        self.num_epochs = int(num_epochs)
        self.train_list = [str(name) for name in train_list]
        self.val_list = [str(name) for name in val_list or ()]
        self.callbacks = list(callbacks or ())
        self.num_masters = int(num_masters)
        self.synchronous = bool(synchronous)
        self.seed = seed
        self.profile = None if profile is None else Path(profile)
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.checkpoint_interval = int(checkpoint_interval)
        self.restore = None if restore is None else Path(restore)
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
            found = communicator.find_communicator()
            comm = None if found is None else found.handle
        layout = find_layout(comm, self.num_masters)
        channel = Channel(comm, self.timeout)
        try:
            run = rank_of(self._training(), channel, layout)
            run.prepare()
            with session(
                sync=self.synchronous,
                role=layout.role(channel.rank),
                comm=comm,
                timeout=self.timeout,
            ) as joined:
                history: dict[str, list[float | None]] | None = run.train(joined)
        except StoppedError as error:
            raise RuntimeError(str(error)) from None
        channel.close()
        self.model, self.outcome = run.model, run.outcome
        return history

    def _training(self) -> Training:
        """Return what all ranks read; a user may have changed it since this object was made."""
        fields = dataclasses.fields(Training)
        return Training(**{field.name: getattr(self, field.name) for field in fields})
