"""Copies of the model on the ranks, one module for each framework that Keras runs on."""

import importlib
import logging
from typing import Any, Final

import keras
import numpy as np

from multiverso.learn._errors import InputError, first_line
from multiverso.learn.algo import Algo
from multiverso.learn.replicas.base import Batch, Replica, unpack

__all__ = ["Batch", "Replica", "training_replica", "validation_replica"]

_log = logging.getLogger("multiverso")

_BACKENDS: Final = {
    "torch": ("torch_replica", "TorchReplica"),
    "jax": ("jax_replica", "JaxReplica"),
    "tensorflow": ("tensorflow_replica", "TensorFlowReplica"),
}


def training_replica(
    model: Any, algo: Algo, sample: Batch, gradients: str = "framework"
) -> Replica:
    """Return the replica with which a worker trains `model`, which is compiled for it here.

    Parameters
    ----------
    model : keras.Model
        The model.
    algo : Algo
        Whether gradients are wanted, and the loss.
    sample : tuple
        A batch, on which the model is tried.
    gradients : {"framework", "difference"}, optional
        Where gradients come from: the framework's own differentiation, or, for a model whose
        ``train_step`` is not like Keras', the difference that a step of SGD makes.

    Raises
    ------
    InputError
        If Keras runs on something that cannot train, the model cannot be compiled, or the batch
        does not fit it.

    """
    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        msg = f"the backend of Keras: expected one of {', '.join(_BACKENDS)}, received {backend}"
        raise InputError(msg)
    if algo.local_steps:
        algo.compile_model(model)
        return _made(*_BACKENDS[backend], _try_out(model, sample))
    if gradients == "difference":
        algo.compile_model(model, keras.optimizers.SGD(1.0))
        return _made("difference", "DifferenceReplica", _try_out(model, sample))
    from multiverso.learn.replicas.tap import GradientTap

    algo.compile_model(model, GradientTap())
    replica = _made(*_BACKENDS[backend], _try_out(model, sample))
    if type(model).train_step.__module__.startswith("keras.") or _gives_gradients(replica, sample):
        return replica
    replica.finish()
    _log.warning("its own train_step gives no gradients: they are taken from a step of SGD")
    return training_replica(model, algo, sample, "difference")


def validation_replica(model: Any, algo: Algo, sample: Batch) -> Replica:
    """Return a replica that is not trained: the master's. Raises what `training_replica` does."""
    algo.compile_model(model)
    replica = Replica(_try_out(model, sample))
    replica.pull()
    replica.pull_state()
    return replica


def _try_out(model: Any, sample: Batch) -> Any:
    """Return the compiled model after one batch without training, which builds what is not built.

    Raises
    ------
    InputError
        If the batch does not fit the model or its loss.

    """
    features, labels, weights = unpack(sample)
    try:
        model.test_on_batch(features, labels, sample_weight=weights)
    except Exception as error:  # each framework has its own for wrong shapes
        msg = f"the model and the data do not go together: {first_line(error)}"
        raise InputError(msg) from error
    model.reset_metrics()
    return model


def _gives_gradients(replica: Replica, sample: Batch) -> bool:
    """Return whether a step of the model's own kind hands its gradients to the optimiser."""
    replica.pull_state()
    state = replica.state.copy()
    try:
        replica.step(sample)
        gives = replica.model.optimizer.gradients is not None
    except (
        Exception
    ) as error:  # the user's own code, in which anything may fail without an optimiser
        _log.debug("the model's train_step failed: %s", error)
        gives = False
    replica.results()
    np.copyto(replica.state, state)
    replica.push_state()
    return gives


def _made(module: str, name: str, model: Any) -> Replica:
    kind = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    replica: Replica = kind(model)
    return replica
