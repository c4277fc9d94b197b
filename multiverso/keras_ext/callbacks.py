"""A callback that synchronizes the model in ``fit`` between the workers."""

import numbers
import sys
import warnings
import zlib
from typing import TYPE_CHECKING, Any, Final

import keras
import numpy as np

from multiverso._native.arguments import flag
from multiverso.api import current_session
from multiverso.errors import MismatchError
from multiverso.keras_ext._variables import sync_state
from multiverso.keras_ext.layers import Embedding, layers_of
from multiverso.keras_ext.param_manager import KerasParamManager
from multiverso.sync._param_manager import checked_freq
from multiverso.sync._shares import SyncStatistics
from multiverso.sync._tensor_sync import failing_on_all_ranks

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from multiverso.sync._options import AdapterOptions

__all__ = ["MVCallback"]

#: Callbacks that end the training or change it because of a metric.
_DECIDING: Final = (keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau)


class MVCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Syncs a model after every `freq` batches of ``fit``, and at the end of it.

    The constructor is collective, see `KerasParamManager`: all workers then have the master's
    weights. You can pass the callback to any number of calls of ``fit``, on all backends, with any
    ``steps_per_execution``. Place it before callbacks that save or restore weights. If you set
    weights between two calls of ``fit``, or in a callback when ``fit`` begins, the master's first
    sync adds this change to the table; the other workers do not add it.

    Parameters
    ----------
    model : keras.Model
        The model in ``fit``, or the part of it to synchronize.
    freq : int, optional
        The number of batches from one sync to the next, 1 or more. If ``steps_per_execution`` is
        larger, each execution is followed by a sync.
    sync_non_trainable : {"average", "master", False}, optional
        As for `KerasParamManager`.
    overlap, average, **options : optional
        As for `multiverso.sync.ParamSync`, whose `sync_every` is `freq` here. With `overlap`, the
        end of ``fit`` waits for the last exchange.
    average_metrics : bool, optional
        True replaces the loss and the metrics by their mean over the workers at the end of each
        epoch, for later callbacks and the history; the workers wait for each other. Validation
        metrics are averaged if all workers have the same ones. It has no effect in an elastic
        session, whose workers do not train the same epochs.

    Attributes
    ----------
    manager : KerasParamManager
        The manager of `model`.

    Raises
    ------
    ValueError, TypeError, MismatchError, StateError
        If `freq` is not a positive integer, and as for `KerasParamManager`.

    Examples
    --------
    >>> import keras
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from multiverso.keras_ext import MVCallback
    >>> with mv.session():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    ...     x, y = np.ones((32, 2)), np.ones(32)
    ...     history = model.fit(x, y, epochs=2, verbose=0, callbacks=[MVCallback(model)])
    >>> len(history.history["loss"])
    2

    """

    def __init__(
        self,
        model: Any,
        freq: int = 1,
        sync_non_trainable: SyncStatistics = "average",
        *,
        overlap: bool = False,
        average: bool = False,
        average_metrics: bool = False,
        **options: "Unpack[AdapterOptions]",
    ) -> None:
        super().__init__()
        current_session()
        with failing_on_all_ranks():
            self.freq = checked_freq(freq)
            self._average_metrics = flag(average_metrics, "average_metrics")
        self.manager = KerasParamManager(
            model,
            sync_non_trainable,
            overlap=overlap,
            average=average,
            sync_every=self.freq,
            **options,
        )
        self._epoch_batches = 0
        self._is_first_epoch = False
        self._row_steps: _RowSteps | None = None

    def sync(self) -> None:
        """Sync now, for instance after a barrier, to get the last deltas of the other workers.

        It raises the errors of [`ParamSync.sync`][multiverso.sync.ParamSync.sync].
        """
        self.manager.sync()
        self.manager.wait()

    def on_train_begin(self, logs: Any = None) -> None:
        """Register the model in ``fit``."""
        # No method reads self.model, because that would make Keras copy its state back on JAX.
        if (calling := _calling_list()) is not None:
            # If you pass ``fit`` a callback instead of a list, Keras may call it from another
            # thread while it trains the next batches.
            calling._async_train = False
            self._warn_about(calling.callbacks)
        self.manager.set_trained(self._model)
        self.manager.restart_steps()
        self._is_first_epoch = True
        self._row_steps = _RowSteps(self._model) if layers_of(self._model) else None

    def _warn_about(self, callbacks: list[Any]) -> None:
        """Warn about what goes wrong with several workers, though each alone does it right."""
        session = current_session()
        if session.num_workers == 1 or session.options.elastic:
            return
        before = callbacks[: callbacks.index(self)] if self in callbacks else []
        for callback in callbacks:
            if isinstance(callback, _DECIDING):
                name = type(callback).__name__
                if not self._average_metrics:
                    _warn(
                        f"each worker has its own metrics: pass average_metrics=True, or {name} "
                        "decides differently on the workers"
                    )
                elif callback in before:
                    _warn(f"{name} decides before the metrics are averaged: place MVCallback first")
        optimizer = self._model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
        if getattr(optimizer, "use_ema", False) and not self.manager.average:
            _warn(
                "use_ema=True sets the weights to their moving averages, which is a change that "
                "every worker makes: pass average=True, or the sum of the changes is applied"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Reset the count of batches; in the first epoch, start from the current weights."""
        self._epoch_batches = 0
        # The restart is too early in on_train_begin, where later callbacks may restore weights.
        if self._is_first_epoch and current_session().worker_id != 0:
            self.manager.restart()
        self._is_first_epoch = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sync if `freq` batches have been trained since the last sync.

        The gradients of `multiverso.keras_ext.layers.Embedding` are sent after each step.
        """
        # With steps_per_execution, `batch` is the last batch of the execution.
        epoch_batches = batch + 1
        batches = max(epoch_batches - self._epoch_batches, 1)
        self._epoch_batches = epoch_batches
        if self._row_steps is not None:
            self._row_steps.end(batches)
        self.manager.step(batches)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the metrics over the workers if requested."""
        if self._average_metrics and logs is not None:
            average_over_workers(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Sync and wait for the result."""
        self.sync()


def _warn(text: str) -> None:
    warnings.warn(f"MVCallback: {text}", stacklevel=2)


class _RowSteps:
    """The steps of the embedding layers of a model in ``fit``, together with its optimizer's.

    The gradients of an execution of several batches are one step. Steps are counted in batches: a
    batch that the optimizer drops counts too, so that workers in sync mode make equally many.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._layers = [each for each in layers_of(model) if not each._gradients.is_view]
        for layer in self._layers:
            layer.expect_steps()
        optimizer = model.optimizer
        self._scaler = None
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            self._scaler = optimizer
            optimizer = optimizer.inner_optimizer
        _warn_of_clipping(optimizer, self._layers)
        # The optimizer makes a step with the mean over as many batches.
        self._batches_per_step = optimizer.gradient_accumulation_steps or 1
        # An earlier `fit` may have ended between two steps. With a scaler, the optimizer's count
        # lacks dropped batches, whose number differs between workers.
        self._batches = 0
        if self._scaler is None:
            iterations = keras.ops.convert_to_numpy(optimizer._iterations)
            self._batches = int(iterations) % self._batches_per_step
        # Without a scaler, Keras multiplies the loss by a constant.
        self._constant_scale = float(optimizer.loss_scale_factor or 1.0)
        self._scale = self._current_scale()

    def _current_scale(self) -> float:
        """Return the factor of the loss in the next batch."""
        if self._scaler is None:
            return self._constant_scale
        if not self._scaler.built:
            return float(self._scaler.initial_scale)
        sync_state(self._model)
        return float(keras.ops.convert_to_numpy(self._scaler.dynamic_scale))

    def end(self, batches: int) -> None:
        """Send the gradients if the optimizer has made a step."""
        # The scaler lowers its factor when it drops a batch.
        scale, self._scale = self._scale, self._current_scale()
        batch_scale = None if self._scale < scale else scale * self._batches_per_step
        self._batches += batches
        for layer in self._layers:
            layer.unscale(batch_scale)
            if self._batches >= self._batches_per_step:
                layer.step()
        self._batches %= self._batches_per_step


def _warn_of_clipping(optimizer: Any, layers: list[Embedding]) -> None:
    """Warn if the optimizer clips gradients, but not those of the rows, which it does not see."""
    for option in ("clipnorm", "global_clipnorm", "clipvalue"):
        value = getattr(optimizer, option, None)
        tables = [
            layer.table for layer in layers if layer._gradients.table.options.get(option) != value
        ]
        if value and tables:
            advice = (
                "limit them with the table's clipnorm or clipvalue"
                if option == "global_clipnorm"
                else f"create the table with {option}={value!r} too"
            )
            warnings.warn(
                f"the optimizer's {option}={value!r} does not clip the gradients of the rows of "
                f"{tables[0]!r}: {advice}",
                UserWarning,
                stacklevel=2,
            )


def _calling_list() -> Any:
    """Return the list of callbacks of ``fit`` that is calling one of them, or None."""
    frame = sys._getframe()
    while (outer := frame.f_back) is not None:
        frame = outer
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            return caller
        if not isinstance(caller, keras.callbacks.Callback | None):
            return None
    return None


_VALIDATION_PREFIX = "val_"


def _checksum_of(names: list[str]) -> int:
    return zlib.crc32(" ".join(names).encode())


def average_over_workers(logs: dict[str, Any]) -> None:
    """Replace the numbers in `logs` by their mean over the workers. Collective over the workers.

    The workers of an elastic session do not train the same epochs, so each keeps its own numbers.
    Validation metrics are replaced only if all workers have the same ones, since one may validate.
    """
    session = current_session()
    if session.options.elastic:
        return
    names = sorted(name for name, value in logs.items() if isinstance(value, numbers.Real))
    validated_names = [name for name in names if name.startswith(_VALIDATION_PREFIX)]
    trained_names = [name for name in names if not name.startswith(_VALIDATION_PREFIX)]
    checksums = np.zeros((session.num_workers, 2), np.int64)
    checksums[session.worker_id] = _checksum_of(trained_names), _checksum_of(validated_names)
    session.aggregate(checksums)
    are_equal = (checksums == checksums[0]).all(axis=0)
    if not are_equal[0]:
        received = ", ".join(trained_names)
        msg = f"logs: expected the same metrics on all workers, received {received} here"
        raise MismatchError(msg)
    averaged_names = [*trained_names, *validated_names] if are_equal[1] else trained_names
    if averaged_names:
        values = np.array([float(logs[name]) for name in averaged_names])
        session.aggregate(values)
        logs.update(zip(averaged_names, (values / session.num_workers).tolist(), strict=True))
