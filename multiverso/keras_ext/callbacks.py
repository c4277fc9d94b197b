"""A callback for ``fit`` that keeps the model in step with those of all workers."""

import operator
import sys
from typing import Any

import keras

from multiverso.api import current_session
from multiverso.keras_ext._metrics import average_over_workers
from multiverso.keras_ext.param_manager import KerasParamManager
from multiverso.sync._param_manager import SyncStatistics
from multiverso.sync._tensor_sync import taking_part

__all__ = ["MVCallback"]


class MVCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Syncs a model after every `freq` batches of ``fit``, and at the end of it.

    Making one is collective, see `KerasParamManager`: all workers then have the master's weights.
    It can be given to ``fit`` again and again, on all backends, with any ``steps_per_execution``.
    Place it before callbacks that save or restore weights. What a program sets the weights to
    between two calls of ``fit``, or a callback at the beginning of one, counts on the master only,
    who adds it at the first sync; the others begin with what they have.

    Parameters
    ----------
    model : keras.Model
        The one that is trained, or a part of it that is to be kept in step.
    freq : int, optional
        How many batches make a sync, 1 or more. Where ``steps_per_execution`` is larger, one
        execution does.
    sync_non_trainable : {"average", "master", False}, optional
        As for `KerasParamManager`.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`. The end of ``fit`` waits for the last exchange.
    average_metrics : bool, optional
        True: at the end of each epoch all workers wait for each other, and the loss and the
        metrics become the mean over the workers, for callbacks after this one and for the history.
        Those of the validation do where all workers have them.

    Attributes
    ----------
    manager : KerasParamManager
        What syncs.
    freq : int
        As given.

    Raises
    ------
    ValueError
        If `freq` is no positive integer.
    ValueError, TypeError, MismatchError, StateError
        As for `KerasParamManager`.

    """

    def __init__(
        self,
        model: Any,
        freq: int = 1,
        sync_non_trainable: SyncStatistics = "average",
        *,
        overlap: bool = False,
        average_metrics: bool = False,
    ) -> None:
        super().__init__()
        current_session()
        with taking_part():
            self.freq = _checked(freq)
        self.manager = KerasParamManager(model, sync_non_trainable, overlap=overlap)
        self._average_metrics = average_metrics
        self._batch = 0  # how many this epoch has had
        self._batches = 0  # since the last sync
        self._begins = False

    def sync(self) -> None:
        """Sync now, for instance after a barrier, to see what the others have added last.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.sync`.

        """
        self.manager.sync_all_param()
        self.manager.wait()

    def on_train_begin(self, logs: Any = None) -> None:
        """Note what is trained."""
        # Not self.model: on JAX that would interrupt the training, here and below.
        _be_called_in_time()
        self.manager.set_trained(self._model)
        self._batches = 0
        self._begins = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count the batches anew; in the first epoch, begin with the weights that there are."""
        self._batch = 0
        # Now, since callbacks may restore weights when training begins.
        if self._begins and current_session().worker_id != 0:
            self.manager.restart()
        self._begins = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sync if the last of `freq` batches has been trained."""
        # With steps_per_execution, batch is the last of those executed together.
        done = batch + 1
        self._batches += max(done - self._batch, 1)
        self._batch = done
        if self._batches >= self.freq:
            self._batches %= self.freq
            self.manager.sync_all_param()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the metrics, if that was asked for."""
        if self._average_metrics and logs is not None:
            average_over_workers(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Sync."""
        self.sync()


def _be_called_in_time() -> None:
    """Let the list of callbacks that has called this one call the ends of batches in time.

    A callback that is given to ``fit`` by itself, and not in a list, Keras takes for one that may
    hear of them from other threads, while the next batches are trained.
    """
    frame = sys._getframe()
    while (outer := frame.f_back) is not None:
        frame = outer
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            caller._async_train = False
            return
        if not isinstance(caller, keras.callbacks.Callback | None):
            return


def _checked(freq: object) -> int:
    try:
        number = 0 if isinstance(freq, bool) else operator.index(freq)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        msg = f"freq: expected an int of 1 or more, received {freq!r}"
        raise ValueError(msg)
    return number
