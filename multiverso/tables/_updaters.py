"""The updaters by name: their codes, their options, and the checks of what a caller gives."""

import math
import numbers
from ctypes import byref
from typing import Any, Final

import numpy as np

from multiverso._native import capi
from multiverso._native.library import call, lib

_LEARNING_RATE: Final = {"learning_rate": capi.MV_HYPER_LEARNING_RATE}
_MOMENTUM: Final = {"momentum": capi.MV_HYPER_MOMENTUM}
_RHO: Final = {"rho": capi.MV_HYPER_RHO}
_EPSILON: Final = {"epsilon": capi.MV_HYPER_EPSILON}
_BETAS: Final = {"beta_1": capi.MV_HYPER_BETA_1, "beta_2": capi.MV_HYPER_BETA_2}

#: Name of an updater: its code, and the options it has with their places among MV_HYPER_. The
#: defaults and the limits of the options are the library's.
UPDATERS: Final[dict[str, tuple[int, dict[str, int]]]] = {
    "add": (capi.MV_UPDATER_ADD, {}),
    "sgd": (capi.MV_UPDATER_SGD, _LEARNING_RATE),
    "momentum": (capi.MV_UPDATER_MOMENTUM, _LEARNING_RATE | _MOMENTUM),
    "nesterov": (capi.MV_UPDATER_NESTEROV, _LEARNING_RATE | _MOMENTUM),
    "adagrad": (
        capi.MV_UPDATER_ADAGRAD,
        _LEARNING_RATE
        | {"initial_accumulator_value": capi.MV_HYPER_INITIAL_ACCUMULATOR_VALUE}
        | _EPSILON,
    ),
    "rmsprop": (capi.MV_UPDATER_RMSPROP, _LEARNING_RATE | _RHO | _MOMENTUM | _EPSILON),
    "adadelta": (capi.MV_UPDATER_ADADELTA, _LEARNING_RATE | _RHO | _EPSILON),
    "adam": (capi.MV_UPDATER_ADAM, _LEARNING_RATE | _BETAS | _EPSILON),
    "easgd": (capi.MV_UPDATER_EASGD, {"elastic_force": capi.MV_HYPER_ELASTIC_FORCE}),
    "dcasgd": (
        capi.MV_UPDATER_DCASGD,
        _LEARNING_RATE | {"variance_control": capi.MV_HYPER_VARIANCE_CONTROL},
    ),
}


def set_updater(raw: capi.MV_TableOptions, updater: object, options: dict[str, Any]) -> str:
    """Put an updater and its options into `raw`; those that are None keep their defaults.

    Raises
    ------
    TypeError
        If `updater` is no str, has no such option, or a value is no number.
    ValueError
        If there is no such updater, or a value is not finite.

    """
    wanted = ", ".join(map(repr, UPDATERS))
    if not isinstance(updater, str):
        msg = f"updater: expected one of {wanted}, received {updater!r}"
        raise TypeError(msg)
    if updater not in UPDATERS:
        msg = f"updater: expected one of {wanted}, received {updater!r}"
        raise ValueError(msg)
    call(lib.MV_TableOptionsSetUpdater, byref(raw), UPDATERS[updater][0])
    given = {name: value for name, value in options.items() if value is not None}
    for place, value in hyper_values(updater, given).items():
        raw.hyper[place] = value
    return updater


def hyper_values(updater: str, options: dict[str, Any]) -> dict[int, float]:
    """Return the values of options by their places among MV_HYPER_.

    Raises
    ------
    TypeError
        If the updater has no such option, or a value is no number.
    ValueError
        If a value is not finite. Other limits are the library's to check.

    """
    places = UPDATERS[updater][1]
    values = {}
    for name, value in options.items():
        if name not in places:
            known = ", ".join(places) or "no options"
            msg = f"{name}: updater '{updater}' has {known}, received {name}={value!r}"
            raise TypeError(msg)
        if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
            msg = f"{name}: expected a number, received {value!r}"
            raise TypeError(msg)
        try:
            number = float(value)
        except OverflowError:  # an int that no float holds
            number = math.inf
        if not math.isfinite(number):
            msg = f"{name}: expected a finite number, received {value!r}"
            raise ValueError(msg)
        values[places[name]] = number
    return values
