"""The optimisers of the master: names and options as in Keras, and the updaters that they are.

The parameter server applies them beside the parameters. Keras has an optimiser object of the same
name on the master nevertheless, which does nothing but carry the learning rate for callbacks, and
goes into the files that ModelCheckpoint writes.
"""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from multiverso.learn._errors import InputError

__all__ = ["OPTIMIZERS", "ServerOptimizer", "server_optimizer", "worker_optimizer"]


@dataclass(frozen=True)
class _Kind:
    """What one name stands for.

    Attributes
    ----------
    defaults : dict
        The options it has, with the values that hold where none are given; None is the updater's.
    keras : str
        Keras' class for it.

    """

    defaults: dict[str, float | None]
    keras: str


# The learning rate of adadelta is 1 in the paper (Zeiler 2012) and in mpi_learn; with Keras' 0.001
# it would not move. With Keras' for adagrad and sgd, three epochs over some ten thousand samples
# are too few.
_KINDS: Final[dict[str, _Kind]] = {
    "sgd": _Kind({"learning_rate": 0.05}, "SGD"),
    "momentum": _Kind({"learning_rate": 0.01, "momentum": 0.9}, "SGD"),
    "nesterov": _Kind({"learning_rate": 0.01, "momentum": 0.9}, "SGD"),
    "adagrad": _Kind(
        {"learning_rate": 0.01, "initial_accumulator_value": None, "epsilon": None}, "Adagrad"
    ),
    "rmsprop": _Kind(
        {"learning_rate": 0.001, "rho": None, "momentum": None, "epsilon": None}, "RMSprop"
    ),
    "adadelta": _Kind({"learning_rate": 1.0, "rho": None, "epsilon": None}, "Adadelta"),
    "adam": _Kind(
        {"learning_rate": 0.001, "beta_1": None, "beta_2": None, "epsilon": None}, "Adam"
    ),
    "dcasgd": _Kind({"learning_rate": 0.05, "variance_control": None}, "SGD"),
}

#: The names that `Algo` takes.
OPTIMIZERS: Final = tuple(_KINDS)

#: Options of Keras and of older scripts under another name.
_ALIASES: Final = {"lr": "learning_rate"}


@dataclass(frozen=True)
class ServerOptimizer:
    """An optimiser that the parameter server applies.

    Attributes
    ----------
    name : str
        As the user gave it, in small letters.
    updater : str
        The updater of the table.
    options : dict of str to float
        Its options, those given and those that have another default than the updater's.

    """

    name: str
    updater: str
    options: dict[str, float]

    @property
    def learning_rate(self) -> float:
        """The learning rate at the start."""
        return self.options["learning_rate"]

    def keras_twin(self) -> Any:
        """Return an optimiser of Keras with the same name and options."""
        import keras

        kind = _KINDS[self.updater]
        options: dict[str, Any] = {
            name: value for name, value in self.options.items() if name != "variance_control"
        }
        if self.updater == "nesterov":
            options["nesterov"] = True
        return getattr(keras.optimizers, kind.keras)(**options)


def server_optimizer(name: object, options: Mapping[str, Any]) -> ServerOptimizer:
    """Return the optimiser of that name with these options, names and options as in Keras.

    ``sgd`` with ``momentum`` is the updater momentum, and with ``nesterov=True`` that of Nesterov.

    Raises
    ------
    InputError
        If there is no such optimiser, it has no such option, or a value is no number.

    """
    wanted = ", ".join(OPTIMIZERS)
    if not isinstance(name, str) or name.lower() not in _KINDS:
        msg = f"optimizer: expected one of {wanted}, received {name!r}"
        raise InputError(msg)
    updater = name.lower()
    given = {_ALIASES.get(key, key): value for key, value in options.items() if value is not None}
    if updater == "sgd":
        nesterov = given.pop("nesterov", False)
        if given.get("momentum") or nesterov:
            updater = "nesterov" if nesterov else "momentum"
            given.setdefault("momentum", 0.0)
        else:
            given.pop("momentum", None)
    defaults = _KINDS[updater].defaults
    for key, value in given.items():
        if key not in defaults:
            msg = (
                f"optimizer {name} has the options {', '.join(defaults)}, received {key}={value!r}"
            )
            raise InputError(msg)
    values = {**{k: v for k, v in defaults.items() if v is not None}, **given}
    return ServerOptimizer(
        name.lower(), updater, {key: _number(key, value) for key, value in values.items()}
    )


def worker_optimizer(name: str, learning_rate: float | None, momentum: float) -> Any:
    """Return the optimiser of Keras with which a worker trains its own copy, for EASGD.

    Parameters
    ----------
    name : str
        Any name that Keras knows.
    learning_rate : float or None
        None: 0.05 for SGD, and Keras' default for the others.
    momentum : float
        For SGD: Nesterov's momentum, as in the paper's EAMSGD.

    Raises
    ------
    InputError
        If Keras knows no such optimiser.

    """
    import keras

    if name.lower() == "sgd":
        rate = 0.05 if learning_rate is None else learning_rate
        return keras.optimizers.SGD(rate, momentum=momentum, nesterov=momentum > 0)
    options = {} if learning_rate is None else {"learning_rate": learning_rate}
    try:
        return keras.optimizers.get({"class_name": name, "config": options})
    except (ValueError, TypeError) as error:
        msg = f"worker_optimizer: expected the name of an optimiser of Keras, received {name!r}"
        raise InputError(msg) from error


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        msg = f"{name}: expected a finite number, received {value!r}"
        raise InputError(msg)
    return float(value)
