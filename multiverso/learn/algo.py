"""`Algo`, the algorithm of a training: its optimizers, its loss, and how the workers exchange.

An optimizer of the server is a table's updater. The model of the master is compiled with Keras'
equivalent, which does not train: callbacks change its learning rate, and ModelCheckpoint saves it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, get_args

from multiverso._native.arguments import between, choice, finite, integer, text
from multiverso.learn._input import InputError, as_input_error
from multiverso.learn.data import mapped
from multiverso.tables._options import Wire
from multiverso.tables._updaters import OPTIONAL, UPDATERS

__all__ = ["Algo"]

#: The ways in which values travel between nodes.
WIRES: Final = get_args(Wire)

_MODES: Final = ("sgd", "easgd", "diloco")

#: By what a worker's changes may be weighted.
WEIGHTS: Final = ("samples",)

#: The elastic force of all workers together in the paper's experiments (beta).
_DEFAULT_BETA: Final = 0.9

#: The names that `Algo` takes, which are those of updaters: for each, its class in Keras, and the
#: defaults that differ from those of the updater.
# The updater "ftrl" is not among them, because it shrinks the initial parameters of a network.
# The learning rate of adadelta is 1 in the paper (Zeiler 2012) and in mpi_learn; with Keras' 0.001
# the optimizer hardly moves. Keras' learning rates for adagrad and sgd are too small to learn from
# ten thousand samples in three epochs.
_KERAS_OPTIMIZERS: Final[dict[str, tuple[str, dict[str, float]]]] = {
    "sgd": ("SGD", {"learning_rate": 0.05}),
    "momentum": ("SGD", {"learning_rate": 0.01, "momentum": 0.9}),
    "nesterov": ("SGD", {"learning_rate": 0.01, "momentum": 0.9}),
    "adagrad": ("Adagrad", {"learning_rate": 0.01}),
    "rmsprop": ("RMSprop", {"learning_rate": 0.001}),
    "adadelta": ("Adadelta", {"learning_rate": 1.0}),
    "adam": ("Adam", {"learning_rate": 0.001}),
    "dcasgd": ("SGD", {"learning_rate": 0.05}),
    "dcasgda": ("SGD", {"learning_rate": 0.05}),
}


class Algo:
    """The algorithm of a training. The constructor makes all checks that do not need Keras.

    Parameters
    ----------
    optimizer : str or None
        The optimizer that the parameter server applies to the workers' gradients: "sgd",
        "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "dcasgd" or "dcasgda". It
        may be None with ``mode="easgd"``, which does not use it.
    loss : str, callable, list or dict
        The loss, as ``model.compile`` takes it.
    metrics : list, optional
        The metrics, as ``model.compile`` takes them; by default the accuracy.
    validate_every : int, optional
        Updates between two validations, which in lock-step wait for the end of the epoch; 0 means
        no validation; None, the default, one after each epoch.
    sync_every : int, optional
        Batches of a worker between two exchanges. With ``mode="sgd"`` the worker sends the mean of
        their gradients. With `fragments`, batches between two exchanges of the same fragment.
    mode : {"sgd", "easgd", "diloco"}
        "sgd", Downpour SGD (Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012): each
        worker sends gradients, the optimizer applies them, and the worker continues with the new
        parameters. "easgd" (Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD",
        NIPS 2015): each worker trains its own parameters x with its own optimizer, and at every
        exchange x and the center c move toward each other by elastic_force * (x - c). "diloco"
        (Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
        arXiv:2311.08105): each worker trains with its own optimizer, and sends the change of its
        parameters since the last exchange, negated, as a gradient; the paper uses "nesterov" with a
        learning rate of 0.7 as `optimizer`, "adamw" as `worker_optimizer`, and lock-step.
    worker_optimizer : str, optional
        The workers' optimizer with "easgd" and "diloco", by its name in Keras. "sgd" by default.
    elastic_force : float, optional
        The force of "easgd", from 0 to 1, the paper's alpha; by default 0.9 divided by the number
        of workers.
    elastic_lr : float, optional
        The workers' learning rate with "easgd" and "diloco"; by default 0.05 for "sgd", and Keras'
        default for other optimizers.
    elastic_momentum : float, optional
        The workers' Nesterov momentum with "easgd" and "diloco", for "sgd"; 0 by default.
    wire : {"float32", "bfloat16", "int8"}, optional
        How deltas of float32 travel between nodes, and in half of the bytes the parameters that the
        servers return; docs/slow-links.md describes the formats.
    fragments : int, optional
        With "diloco", the number of parts of the parameters that take turns: each is exchanged once
        in `sync_every` batches, at equal distances, as in `multiverso.sync.ParamSync` (Streaming
        DiLoCo, arXiv:2501.18512). At most `sync_every`.
    weight : {"samples"}, optional
        With "diloco", multiplies a worker's change by the samples that it has trained on since the
        last exchange, divided by the mean of all workers' so far, as `multiverso.sync.ParamSync`
        does (Decoupled DiLoCo, arXiv:2604.21428). By default, all changes count the same.
    **options : float
        Options of `optimizer` under their names in Keras, such as ``learning_rate`` or ``beta_1``.

    Raises
    ------
    InputError
        If a name is unknown, or a number is out of range.

    Examples
    --------
    >>> from multiverso.learn import Algo
    >>> Algo("adam", loss="mse", learning_rate=0.01).optimizer.updater
    'adam'

    """

    def __init__(
        self,
        optimizer: str | None,
        loss: Any = "binary_crossentropy",
        *,
        metrics: Any = ("accuracy",),
        validate_every: int | None = None,
        sync_every: int = 1,
        mode: str = "sgd",
        worker_optimizer: str = "sgd",
        elastic_force: float | None = None,
        elastic_lr: float | None = None,
        elastic_momentum: float = 0.0,
        wire: str | None = None,
        fragments: int = 1,
        weight: str | None = None,
        **options: Any,
    ) -> None:
        self.loss = loss
        self.metrics = list(metrics) if isinstance(metrics, tuple) else metrics
        with as_input_error():
            self.mode = choice(mode, "mode", _MODES)
            self.worker_optimizer = text(worker_optimizer, "worker_optimizer")
            self.wire = None if wire is None else choice(wire, "wire", WIRES)
            self.weight = None if weight is None else choice(weight, "weight", WEIGHTS)
            self.validate_every = (
                None if validate_every is None else integer(validate_every, "validate_every", 0)
            )
            self.sync_every = integer(sync_every, "sync_every", 1)
            self.fragments = integer(fragments, "fragments", 1)
            self.elastic_force = (
                None if elastic_force is None else between(elastic_force, "elastic_force", 0, 1)
            )
            self.elastic_lr = None if elastic_lr is None else between(elastic_lr, "elastic_lr", 0)
            self.elastic_momentum = between(elastic_momentum, "elastic_momentum", 0, 1)
        if self.fragments > self.sync_every:
            raise InputError(
                f"fragments: expected at most sync_every, {self.sync_every}, received {fragments}"
            )
        if mode != "diloco" and (self.fragments > 1 or weight is not None):
            name = "fragments" if self.fragments > 1 else "weight"
            raise InputError(f"{name}: expected mode 'diloco', received {mode!r}")
        # Without a name, options are an error even if the mode needs no optimizer.
        needs_none = self.elastic and optimizer is None and not options
        self.optimizer = None if needs_none else server_optimizer(optimizer, options)

    @property
    def elastic(self) -> bool:
        """Whether the mode is elastic averaging."""
        return self.mode == "easgd"

    @property
    def local_steps(self) -> bool:
        """Whether workers train with an optimizer of their own."""
        return self.mode != "sgd"

    def force(self, workers: int) -> float:
        """Return the elastic force of each of `workers` workers."""
        return _DEFAULT_BETA / workers if self.elastic_force is None else self.elastic_force

    def compile_model(self, model: Any, optimizer: Any = None) -> None:
        """Compile `model` with the loss and the metrics.

        Parameters
        ----------
        model : keras.Model
            The model.
        optimizer : keras.optimizers.Optimizer, optional
            The optimizer; by default Keras' equivalent of the one that trains the model.

        Raises
        ------
        InputError
            If Keras has no such loss, metric or optimizer.

        """
        import keras

        mapped(partial(_require_known, "loss", keras.losses.get), self.loss)
        mapped(partial(_require_known, "metrics", keras.metrics.get), self.metrics)
        if optimizer is None and self.optimizer is not None and not self.local_steps:
            optimizer = self.optimizer.keras_twin()
        elif optimizer is None:
            optimizer = self._make_worker_optimizer()
        with as_input_error("cannot compile the model", ValueError, TypeError):
            model.compile(
                optimizer=optimizer, loss=self.loss, metrics=self.metrics, auto_scale_loss=False
            )

    def _make_worker_optimizer(self) -> Any:
        """Return a worker's optimizer; SGD has momentum as in EAMSGD (Zhang et al. 2015)."""
        import keras

        name, momentum = self.worker_optimizer, self.elastic_momentum
        options: dict[str, Any] = {}
        if name.lower() == "sgd":
            options = {"learning_rate": 0.05, "momentum": momentum, "nesterov": momentum > 0}
        if self.elastic_lr is not None:
            options["learning_rate"] = self.elastic_lr
        wanted = "expected the name of an optimizer of Keras"
        with as_input_error(f"worker_optimizer: {wanted}, received {name!r}"):
            return keras.optimizers.get({"class_name": name, "config": options})

    def __repr__(self) -> str:
        """Return the mode, the optimizers, the loss and `sync_every`."""
        text = f"mode={self.mode!r}"
        if not self.elastic:
            text += f", optimizer={self.optimizer}"
        if self.local_steps:
            text += f", worker_optimizer={self.worker_optimizer!r}"
        return f"<Algo {text}, loss={self.loss!r}, sync_every={self.sync_every}>"


@dataclass(frozen=True)
class ServerOptimizer:
    """An optimizer that the parameter server applies."""

    updater: str  # The updater of the table.
    #: The given options, and for the others the defaults of this module.
    options: dict[str, float]

    @property
    def compensates_delays(self) -> bool:
        """Whether the server notes what each worker receives, for which it must be on one node."""
        return self.updater.startswith("dcasgd")

    def keras_twin(self) -> Any:
        """Return the equivalent optimizer of Keras, plain SGD for "dcasgd" and "dcasgda"."""
        import keras

        options: dict[str, Any] = {**self.options}
        if self.compensates_delays:
            options = {"learning_rate": options["learning_rate"]}
        if self.updater == "nesterov":
            options["nesterov"] = True
        return getattr(keras.optimizers, _KERAS_OPTIMIZERS[self.updater][0])(**options)


def server_optimizer(name: object, options: Mapping[str, Any]) -> ServerOptimizer:
    """Return the optimizer of a name of Keras, whose SGD with momentum has its own updater."""
    if not isinstance(name, str) or name.lower() not in _KERAS_OPTIMIZERS:
        names = ", ".join(_KERAS_OPTIMIZERS)
        given = f"{name!r} with options {', '.join(options)}" if options else repr(name)
        raise InputError(f"optimizer: expected one of {names}, received {given}")
    updater = name.lower()
    options = {key: value for key, value in options.items() if value is not None}
    if "lr" in options:  # It is the name in old versions of Keras.
        options["learning_rate"] = options.pop("lr")
    if updater == "sgd":
        nesterov = options.pop("nesterov", False)
        if options.get("momentum") or nesterov:
            updater = "nesterov" if nesterov else "momentum"
            options.setdefault("momentum", 0.0)
        else:
            options.pop("momentum", None)
    known = [option for option in UPDATERS[updater][1] if option not in OPTIONAL]
    for key, value in options.items():
        if key not in known:
            raise InputError(
                f"optimizer {name}: expected options among {', '.join(known)}, received "
                f"{key}={value!r}"
            )
    values = {**_KERAS_OPTIMIZERS[updater][1], **options}
    with as_input_error():
        checked = {key: finite(value, key) for key, value in values.items()}
    return ServerOptimizer(updater, checked)


def _require_known(argument: str, get: Callable[[str], Any], name: object) -> None:
    """Raise InputError if `get` of Keras knows no loss or metric of this name, if it is a name."""
    # Keras replaces these names by a metric that it chooses by the loss.
    if argument == "metrics" and name in ("accuracy", "acc", "crossentropy", "ce"):
        return
    if isinstance(name, str):
        with as_input_error(f"{argument}: expected a name that Keras knows, received {name!r}"):
            get(name)
