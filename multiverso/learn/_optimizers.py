"""The optimizers of the parameter server and of the workers, with names and options as in Keras.

An optimizer of the server is a table's updater. The model of the master is compiled with Keras'
equivalent, which does not train: callbacks change its learning rate, and ModelCheckpoint saves it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from multiverso._native.arguments import finite
from multiverso.learn._input import InputError, argument_checks
from multiverso.tables._updaters import OPTIONAL, UPDATERS

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

#: Other names of options in old versions of Keras.
_ALIASES: Final = {"lr": "learning_rate"}


@dataclass(frozen=True)
class ServerOptimizer:
    """An optimizer that the parameter server applies."""

    name: str  # The name that the user gave, in lower case.
    updater: str  # The updater of the table.
    #: The given options, and for the others the defaults of this module.
    options: dict[str, float]

    def keras_twin(self) -> Any:
        """Return the equivalent optimizer of Keras with the same options.

        It is plain SGD for "dcasgd" and "dcasgda", whose other options Keras does not have.
        """
        import keras

        options: dict[str, Any] = {**self.options}
        if self.updater.startswith("dcasgd"):
            options = {"learning_rate": options["learning_rate"]}
        if self.updater == "nesterov":
            options["nesterov"] = True
        return getattr(keras.optimizers, _KERAS_OPTIMIZERS[self.updater][0])(**options)


def server_optimizer(name: object, options: Mapping[str, Any]) -> ServerOptimizer:
    """Return the optimizer with this name and with options that are named as in Keras.

    ``sgd`` with ``momentum`` is the updater "momentum", and with ``nesterov=True`` "nesterov".
    """
    if not isinstance(name, str) or name.lower() not in _KERAS_OPTIMIZERS:
        names = ", ".join(_KERAS_OPTIMIZERS)
        raise InputError(f"optimizer: expected one of {names}, received {name!r}")
    updater = name.lower()
    options = {_ALIASES.get(key, key): value for key, value in options.items() if value is not None}
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
    with argument_checks():
        checked = {key: finite(value, key) for key, value in values.items()}
    return ServerOptimizer(name.lower(), updater, checked)


def worker_optimizer(name: str, learning_rate: float | None, momentum: float) -> Any:
    """Return the optimizer of Keras with which a worker trains its own parameters.

    By default the learning rate is 0.05 for SGD, and Keras' default for other optimizers. Only SGD
    uses `momentum`, as Nesterov's momentum like EAMSGD (Zhang et al. 2015).
    """
    import keras

    if name.lower() == "sgd":
        rate = 0.05 if learning_rate is None else learning_rate
        return keras.optimizers.SGD(rate, momentum=momentum, nesterov=momentum > 0)
    options = {} if learning_rate is None else {"learning_rate": learning_rate}
    try:
        return keras.optimizers.get({"class_name": name, "config": options})
    except (ValueError, TypeError) as error:
        raise InputError(
            f"worker_optimizer: expected the name of an optimizer of Keras, received {name!r}"
        ) from error
