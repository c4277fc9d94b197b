"""The names, codes and options of the updaters."""

from collections.abc import Iterable
from ctypes import byref
from typing import Any, Final

from multiverso._native import capi
from multiverso._native.arguments import choice, finite, suggestion
from multiverso._native.library import checked

_LEARNING_RATE: Final = {"learning_rate": capi.MV_HYPER_LEARNING_RATE}
_MOMENTUM: Final = {"momentum": capi.MV_HYPER_MOMENTUM}
_RHO: Final = {"rho": capi.MV_HYPER_RHO}
_EPSILON: Final = {"epsilon": capi.MV_HYPER_EPSILON}
_OUTER: Final = {"outer_epsilon": capi.MV_HYPER_OUTER_EPSILON}
_INITIAL: Final = {"initial_accumulator_value": capi.MV_HYPER_INITIAL_ACCUMULATOR_VALUE}
_VARIANCE_CONTROL: Final = {"variance_control": capi.MV_HYPER_VARIANCE_CONTROL}
_BETAS: Final = {"beta_1": capi.MV_HYPER_BETA_1, "beta_2": capi.MV_HYPER_BETA_2}
_DECAY_AND_CLIPPING: Final = {
    "weight_decay": capi.MV_HYPER_WEIGHT_DECAY,
    "clipnorm": capi.MV_HYPER_CLIPNORM,
    "clipvalue": capi.MV_HYPER_CLIPVALUE,
}
#: Options that have no effect while they are 0.
OPTIONAL: Final = _DECAY_AND_CLIPPING | _OUTER
_ADAM: Final = _LEARNING_RATE | _BETAS | _EPSILON | _OUTER | _DECAY_AND_CLIPPING

#: Names that other libraries have for options.
_ALIASES: Final = {
    "lr": "learning_rate",
    "alpha": "rho",
    "eps": "epsilon",
    "wd": "weight_decay",
    "betas": "beta_1",
    "beta1": "beta_1",
    "beta2": "beta_2",
    "l1": "l1_regularization_strength",
    "l2": "l2_regularization_strength",
    "initializer": "init_value",
}

#: What to write in place of options that no updater has.
_INSTEAD: Final = {
    **dict.fromkeys(
        ("lr_decay", "decay"), "change the rate with table.set_option(learning_rate=...)"
    ),
    "amsgrad": "write updater='amsgrad'",
    "nesterov": "write updater='nesterov'",
    "ttl": "keys do not expire: remove them with table.remove, or let others take their rows with "
    "evict='lru'",
}

#: The code of each updater by name, and the MV_HYPER_ index of each of the updater's options. The
#: library knows the defaults and the limits of the options.
UPDATERS: Final[dict[str, tuple[int, dict[str, int]]]] = {
    "add": (capi.MV_UPDATER_ADD, {}),
    "sgd": (capi.MV_UPDATER_SGD, _LEARNING_RATE | _DECAY_AND_CLIPPING),
    "momentum": (capi.MV_UPDATER_MOMENTUM, _LEARNING_RATE | _MOMENTUM | _DECAY_AND_CLIPPING),
    "nesterov": (capi.MV_UPDATER_NESTEROV, _LEARNING_RATE | _MOMENTUM | _DECAY_AND_CLIPPING),
    "adagrad": (
        capi.MV_UPDATER_ADAGRAD,
        _LEARNING_RATE | _INITIAL | _EPSILON | _OUTER | _DECAY_AND_CLIPPING,
    ),
    "rmsprop": (
        capi.MV_UPDATER_RMSPROP,
        _LEARNING_RATE | _RHO | _MOMENTUM | _EPSILON | _OUTER | _DECAY_AND_CLIPPING,
    ),
    "adadelta": (capi.MV_UPDATER_ADADELTA, _LEARNING_RATE | _RHO | _EPSILON | _DECAY_AND_CLIPPING),
    "adam": (capi.MV_UPDATER_ADAM, _ADAM),
    "easgd": (capi.MV_UPDATER_EASGD, {"elastic_force": capi.MV_HYPER_ELASTIC_FORCE}),
    "dcasgd": (capi.MV_UPDATER_DCASGD, _LEARNING_RATE | _VARIANCE_CONTROL),
    "ftrl": (
        capi.MV_UPDATER_FTRL,
        _LEARNING_RATE
        | _INITIAL
        | {
            "learning_rate_power": capi.MV_HYPER_LEARNING_RATE_POWER,
            "l1_regularization_strength": capi.MV_HYPER_L1_REGULARIZATION,
            "l2_regularization_strength": capi.MV_HYPER_L2_REGULARIZATION,
            "l2_shrinkage_regularization_strength": capi.MV_HYPER_L2_SHRINKAGE,
            "beta": capi.MV_HYPER_BETA,
        }
        | _DECAY_AND_CLIPPING,
    ),
    "dcasgda": (capi.MV_UPDATER_DCASGDA, _LEARNING_RATE | _VARIANCE_CONTROL | _RHO | _EPSILON),
    "adamw": (capi.MV_UPDATER_ADAMW, _ADAM),
    "rowwise_adagrad": (
        capi.MV_UPDATER_ROWWISE_ADAGRAD,
        _LEARNING_RATE | _EPSILON | _DECAY_AND_CLIPPING,
    ),
    "rowwise_adam": (
        capi.MV_UPDATER_ROWWISE_ADAM,
        _LEARNING_RATE | _BETAS | _EPSILON | _DECAY_AND_CLIPPING,
    ),
    "amsgrad": (capi.MV_UPDATER_AMSGRAD, _ADAM),
}

#: The names of Multiverso 2016 that differ, and what to write instead.
FORMER_UPDATERS: Final = {"default": "write 'add'", "momentum_sgd": "write 'momentum'"}


def set_updater(
    raw: capi.MV_TableOptions, updater: object, options: dict[str, Any], arguments: Iterable[str]
) -> str:
    """Store an updater and its options in `raw`; options that are None keep their defaults."""
    name = choice(updater, "updater", UPDATERS, FORMER_UPDATERS)
    checked.MV_TableOptionsSetUpdater(byref(raw), UPDATERS[name][0])
    require_options(name, options, arguments)
    given = {option: value for option, value in options.items() if value is not None}
    for index, value in hyper_values(name, given).items():
        raw.hyper[index] = value
    return name


def hyper_values(updater: str, options: dict[str, Any]) -> dict[int, float]:
    """Return the values of options by their index in ``hyper``, a ``MV_HYPER_`` constant."""
    require_options(updater, options)
    indices = UPDATERS[updater][1]
    return {indices[name]: finite(value, name) for name, value in options.items()}


def require_options(updater: str, options: dict[str, Any], arguments: Iterable[str] = ()) -> None:
    """Raise TypeError if the updater lacks one of the options. `arguments` as for `set_updater`."""
    indices = UPDATERS[updater][1]
    for name, value in options.items():
        if name not in indices:
            others = _updaters_with(_ALIASES.get(name, name))
            existing = ", ".join(indices) or "no options"
            has = f"updater '{updater}' has {existing}"
            if not (indices or others):
                has = "expected no such argument"
            meant = suggestion(name, (*indices, *arguments), _ALIASES) or others
            if name in _INSTEAD:
                meant = f"; {_INSTEAD[name]}"
            raise TypeError(f"{name}: {has}, received {name}={value!r}{meant}")


def _updaters_with(option: str) -> str:
    """Return "; 'X' is an option of ..." with the updaters that have the option, if any."""
    updaters = ", ".join(repr(name) for name, (_, indices) in UPDATERS.items() if option in indices)
    return f"; {option!r} is an option of {updaters}" if updaters else ""
