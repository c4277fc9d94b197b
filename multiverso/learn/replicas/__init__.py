"""Replicas, the copies of the model on the ranks, with one module for each backend of Keras."""

import importlib
import logging
from typing import Any, Final

import numpy as np

from multiverso._extras import BACKENDS, LEARN, needs
from multiverso.learn._input import InputError, as_input_error
from multiverso.learn.algo import Algo

with needs("the training of a model", **LEARN, **BACKENDS):
    import keras
    import tqdm  # noqa: F401  (for the coordinator; here its absence is found before training)

    from multiverso.learn.replicas._base import Batch, Replica, unpack
    from multiverso.learn.replicas._gradients import DifferenceReplica, GradientCapture

__all__ = ["Batch", "Replica", "training_replica", "unpack", "validation_replica"]

_log = logging.getLogger("multiverso")

_BACKENDS: Final = {"torch": "Torch", "jax": "Jax", "tensorflow": "TensorFlow"}


def training_replica(
    model: Any, algo: Algo, sample: Batch, gradients: str = "framework"
) -> Replica:
    """Compile `model` for training, and return the replica with which a worker trains it.

    Parameters
    ----------
    model : keras.Model
        The model.
    algo : Algo
        The algorithm, which contains the loss and decides whether gradients are needed.
    sample : tuple
        A batch with which the model is tested.
    gradients : {"framework", "difference"}, optional
        "framework" captures the gradients of ``train_step``. "difference" computes them from the
        change that a step of SGD makes, for models whose ``train_step`` passes on none.

    Raises
    ------
    InputError
        If the backend of Keras cannot train, the model cannot be compiled, or the batch does not
        fit the model.

    """
    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        raise InputError(
            f"the backend of Keras: expected one of {', '.join(_BACKENDS)}, received {backend}"
        )
    if gradients == "difference" and not algo.local_steps:
        algo.compile_model(model, keras.optimizers.SGD(1.0))
        return DifferenceReplica(_built(model, sample))
    algo.compile_model(model, None if algo.local_steps else GradientCapture())
    module = importlib.import_module(f"{__name__}._{backend}")
    replica: Replica = getattr(module, f"{_BACKENDS[backend]}Replica")(_built(model, sample))
    has_own_step = not type(model).train_step.__module__.startswith("keras.")
    if algo.local_steps or not has_own_step or _gives_gradients(replica, sample):
        return replica
    replica.finish()
    _log.warning("the model's train_step gives no gradients: they are computed from steps of SGD")
    return training_replica(model, algo, sample, "difference")


def validation_replica(model: Any, algo: Algo, sample: Batch) -> Replica:
    """Return the replica of the master, which is not trained; see `training_replica` for errors."""
    algo.compile_model(model)
    replica = Replica(_built(model, sample))
    replica.pull()
    replica.pull_state()
    return replica


def _built(model: Any, sample: Batch) -> Any:
    """Evaluate a batch, which builds the compiled model and tests the batch; return the model."""
    features, labels, weights = unpack(sample)
    with as_input_error("the data do not fit the model"):  # Frameworks raise errors of many types.
        model.test_on_batch(features, labels, sample_weight=weights)
    model.reset_metrics()
    return model


def _gives_gradients(replica: Replica, sample: Batch) -> bool:
    """Return whether the model's own ``train_step`` passes gradients to the optimizer."""
    replica.pull_state()
    state = replica.state.copy()
    try:
        replica.step(sample)
        gives = replica.model.optimizer.gradients is not None
    except Exception as error:  # A train_step may need an optimizer that changes the weights.
        _log.debug("the model's train_step failed: %s", error)
        gives = False
    replica.results()  # This resets the metrics.
    np.copyto(replica.state, state)
    replica.push_state()
    return gives
