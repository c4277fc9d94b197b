"""`Algo`, the algorithm of a training: its optimizer, its loss, and how the workers exchange."""

from typing import Any, Final, get_args

from multiverso._native.arguments import between, choice, integer, text
from multiverso.learn._input import InputError, argument_checks, as_input_error
from multiverso.learn._optimizers import server_optimizer, worker_optimizer
from multiverso.tables._options import Wire

__all__ = ["Algo"]

#: The ways in which values travel between nodes.
WIRES: Final = get_args(Wire)

_MODES: Final = ("sgd", "easgd", "diloco")

#: By what a worker's changes may be weighted.
WEIGHTS: Final = ("samples",)

#: The elastic force of all workers together in the paper's experiments (beta).
_DEFAULT_BETA: Final = 0.9


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
        How parameters of float32 travel between nodes, as for `multiverso.ArrayTable`.
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
        with argument_checks():
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
        self.optimizer = (
            None if self.elastic and optimizer is None else server_optimizer(optimizer, options)
        )
        if self.optimizer is None and options:
            raise InputError(
                f"optimizer: expected a name with the options {', '.join(options)}, received None"
            )

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

        for get, names, argument in (
            (keras.losses.get, self.loss, "loss"),
            (keras.metrics.get, self.metrics, "metrics"),
        ):
            for name in _strings_in(names):
                # Keras replaces these names by a metric that it chooses by the loss.
                if argument == "metrics" and name in ("accuracy", "acc", "crossentropy", "ce"):
                    continue
                try:
                    get(name)
                except (ValueError, TypeError) as error:
                    raise InputError(
                        f"{argument}: expected a name that Keras knows, received {name!r}"
                    ) from error
        if optimizer is None and self.optimizer is not None and not self.local_steps:
            optimizer = self.optimizer.keras_twin()
        elif optimizer is None:
            momentum = self.elastic_momentum
            optimizer = worker_optimizer(self.worker_optimizer, self.elastic_lr, momentum)
        with as_input_error("cannot compile the model", ValueError, TypeError):
            model.compile(
                optimizer=optimizer, loss=self.loss, metrics=self.metrics, auto_scale_loss=False
            )

    def __repr__(self) -> str:
        """Return the mode, the optimizers, the loss and `sync_every`."""
        text = f"mode={self.mode!r}"
        if not self.elastic:
            text += f", optimizer={self.optimizer}"
        if self.local_steps:
            text += f", worker_optimizer={self.worker_optimizer!r}"
        return f"<Algo {text}, loss={self.loss!r}, sync_every={self.sync_every}>"


def _strings_in(names: Any) -> list[str]:
    """Return the strings among names that may be nested in lists and dictionaries."""
    if isinstance(names, str):
        return [names]
    if isinstance(names, dict):
        names = list(names.values())
    return [name for part in names for name in _strings_in(part)] if isinstance(names, list) else []
