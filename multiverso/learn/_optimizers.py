"""The optimizers of the master: their names and options, as in Keras, and their updaters.

The parameter server applies the optimizers. The master has an equivalent optimizer of
Keras that does not train: callbacks change its learning rate, and ModelCheckpoint saves it.
"""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from multiverso.learn._input import InputError

#: The Keras class of each optimizer, and its options; None means the default of the updater.
# The learning rate of adadelta is 1 in the paper (Zeiler 2012) and in mpi_learn; with Keras' 0.001
# the optimizer hardly moves. Keras' learning rates for adagrad and sgd are too small to learn from
# ten thousand samples in three epochs.
_KINDS: Final[dict[str, tuple[str, dict[str, float | None]]]] = {
    "sgd": ("SGD", {"learning_rate": 0.05}),
    "momentum": ("SGD", {"learning_rate": 0.01, "momentum": 0.9}),
    "nesterov": ("SGD", {"learning_rate": 0.01, "momentum": 0.9}),
    "adagrad": (
        "Adagrad",
        {"learning_rate": 0.01, "initial_accumulator_value": None, "epsilon": None},
    ),
    "rmsprop": (
        "RMSprop",
        {"learning_rate": 0.001, "rho": None, "momentum": None, "epsilon": None},
    ),
    "adadelta": ("Adadelta", {"learning_rate": 1.0, "rho": None, "epsilon": None}),
    "adam": ("Adam", {"learning_rate": 0.001, "beta_1": None, "beta_2": None, "epsilon": None}),
    "dcasgd": ("SGD", {"learning_rate": 0.05, "variance_control": None}),
}

#: The names that `Algo` takes.
OPTIMIZERS: Final = tuple(_KINDS)

#: Other names of options in old versions of Keras.
_ALIASES: Final = {"lr": "learning_rate"}


@dataclass(frozen=True)
class ServerOptimizer:
    """An optimizer that the parameter server applies.

    Attributes
    ----------
    name : str
        The name that the user gave, in lower case.
    updater : str
        The updater of the table.
    options : dict of str to float
        The options given, and defaults that differ from the updater's.

    """

    name: str
    updater: str
    options: dict[str, float]

    def keras_twin(self) -> Any:
        """Return the equivalent optimizer of Keras, or SGD for dcasgd, with the same options."""
        import keras

        options: dict[str, Any] = {**self.options}
        options.pop("variance_control", None)  # Keras has no such option.
        if self.updater == "nesterov":
            options["nesterov"] = True
        return getattr(keras.optimizers, _KINDS[self.updater][0])(**options)


def server_optimizer(name: object, options: Mapping[str, Any]) -> ServerOptimizer:
    """Return the optimizer with this name and with options that are named as in Keras.

    ``sgd`` with ``momentum`` is the updater "momentum", and with ``nesterov=True`` "nesterov".

    Raises
    ------
    InputError
        If the optimizer or an option is unknown, or a value is not a finite number.

    """
    if not isinstance(name, str) or name.lower() not in _KINDS:
        raise InputError(f"optimizer: expected one of {', '.join(OPTIMIZERS)}, received {name!r}")
    updater = name.lower()
    given = {_ALIASES.get(key, key): value for key, value in options.items() if value is not None}
    if updater == "sgd":
        nesterov = given.pop("nesterov", False)
        if given.get("momentum") or nesterov:
            updater = "nesterov" if nesterov else "momentum"
            given.setdefault("momentum", 0.0)
        else:
            given.pop("momentum", None)
    defaults = _KINDS[updater][1]
    for key, value in given.items():
        if key not in defaults:
            raise InputError(
                f"optimizer {name}: expected options among {', '.join(defaults)}, received "
                f"{key}={value!r}"
            )
    values = {**{k: v for k, v in defaults.items() if v is not None}, **given}
    return ServerOptimizer(
        name.lower(), updater, {key: _finite(key, value) for key, value in values.items()}
    )


def worker_optimizer(name: str, learning_rate: float | None, momentum: float) -> Any:
    """Return the optimizer of Keras with which a worker trains its own parameters.

    By default the learning rate is 0.05 for SGD, and Keras' default for other optimizers. Only SGD
    has a momentum, which is Nesterov's as in EAMSGD (Zhang et al. 2015).
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


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise InputError(f"{name}: expected a finite number, received {value!r}")
    return float(value)
