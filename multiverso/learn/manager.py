"""`MPIManager`, which trains a model on all ranks of an MPI job."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from multiverso.api import session
from multiverso.learn._activity import ActivityTimer
from multiverso.learn._history import History
from multiverso.learn._input import (
    InputError,
    checked_flag,
    checked_integer,
    checked_names,
    checked_seconds,
)
from multiverso.learn._layout import find_layout
from multiverso.learn._messages import StoppedError
from multiverso.learn._mpi import job_communicator, open_channel
from multiverso.learn._roles import role_of
from multiverso.learn._training import RankContext, Training
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.model import ModelBuilder

__all__ = ["MPIManager"]


class MPIManager:
    """Trains a model on all ranks. The constructor only keeps arguments; `train` is collective.

    Rank 0 is the master: it validates, calls the callbacks and keeps the history. The other ranks
    are the workers and share the training files. A single rank has both roles. With `num_masters`
    above 1 the workers form groups, and one rank of each group is its sub-master.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The ranks of the training; None means all ranks of the job, or this process alone.
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
    num_masters : int, optional
        With 1, the default, all workers exchange with the same parameters. A higher number includes
        the master and the sub-masters. Workers then exchange with the parameters of their group,
        which the sub-master holds. After every `sync_every` updates of the group the sub-master
        exchanges the parameters of the group with those of all workers. A group is a node if ranks
        other than the master are on as many nodes as there are sub-masters, two or more on each,
        else a contiguous range of ranks. Groups cannot be combined with `synchronous`.
    synchronous : bool, optional
        With True, workers run in lock-step, each update uses the mean of their gradients, and two
        runs with the same `seed` are bitwise identical. With False, each runs at its speed.
    seed : int, optional
        The seed of Keras' random numbers; worker number w uses ``seed + w``.
    profile : path, optional
        File for a trace of all workers and sub-masters, for Chrome or Perfetto.
    checkpoint : path, optional
        A folder, visible on all nodes, for the last two checkpoints of the parameters, running
        means and the state of the optimizer.
    checkpoint_interval : int, optional
        Epochs between two checkpoints; another checkpoint is saved at the end.
    restore : path, optional
        A folder with checkpoints of the same model and optimizer. Training resumes after the epoch
        of the last checkpoint. The number of workers may differ.
    timeout : float, optional
        The longest time that a rank waits for other ranks at any point, in seconds.

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
        timeout: float = 3600.0,
    ) -> None:
        self.num_epochs = checked_integer("num_epochs", num_epochs, 1)
        self.num_masters = checked_integer("num_masters", num_masters, 1)
        self.checkpoint_interval = checked_integer("checkpoint_interval", checkpoint_interval, 1)
        self.synchronous = checked_flag("synchronous", synchronous)
        if self.synchronous and num_masters > 1:
            raise InputError(
                f"num_masters: expected 1 in lock-step, received {num_masters}: every update uses "
                "the gradients of all workers there, so groups would change nothing"
            )
        if num_masters > 1 and (algo.fragments > 1 or algo.weight is not None):
            raise InputError(
                f"num_masters: expected 1 with fragments or weights, received {num_masters}"
            )
        self.comm = comm
        self.data = data
        self.algo = algo
        self.model_builder = model_builder
        self.train_list = checked_names("train_list", train_list)
        self.val_list = [] if val_list is None else checked_names("val_list", val_list)
        self.callbacks = list(callbacks or ())
        self.seed = seed
        self.profile = None if profile is None else Path(profile)
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.restore = None if restore is None else Path(restore)
        self.timeout = checked_seconds("timeout", timeout)
        self.model: Any = None
        self.outcome: History | None = None

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
            If a rank has failed for another reason. The master, and a worker that fails after the
            start of training, raise their original errors instead.
        MultiversoError
            If a rank is lost or does not respond in time.

        """
        comm = job_communicator(self.timeout) if self.comm is None else self.comm
        channel = open_channel(comm, self.timeout)
        # The attributes are read only now, because the user may have changed them.
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(Training)}
        timer = ActivityTimer(trace=self.profile is not None)
        try:
            layout = find_layout(channel, self.num_masters)
            role = role_of(RankContext(Training(**settings), channel, layout, timer))
            role.prepare()
            with session(
                sync=self.synchronous,
                role=layout.session_role(channel.rank),
                comm=comm,
                timeout=self.timeout,
            ) as opened:
                metrics = role.train(opened)
        except StoppedError as error:
            raise RuntimeError(str(error)) from None
        finally:
            channel.close()
        self.model, self.outcome = role.model, role.outcome
        return metrics
