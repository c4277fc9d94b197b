"""Updaters that make the steps of optimizers of PyTorch and Keras.

A table's updater is the optimizer of its rows. If you replace a parameter of a model by a table,
these functions return the updater that makes the steps of the optimizer which the model had.
"""

from typing import Any, Final, NoReturn

__all__ = ["from_keras", "from_torch"]

#: The least epsilon of an updater. Beside an outer epsilon it has no effect.
_NO_EPSILON: Final = 1e-37

#: Options of PyTorch's optimizers that choose an implementation, not another result.
_TORCH_IMPLEMENTATIONS: Final = frozenset(
    {"capturable", "differentiable", "foreach", "fused", "param_names", "params"}
)


def from_torch(optimizer: Any) -> tuple[str, dict[str, float]]:
    """Return the updater and the options that make the steps of an optimizer of PyTorch.

    Where an add names every row, the table's parameters are those of the optimizer, up to
    rounding. A row that an add does not name stays as it is, while `torch.optim` also moves
    parameters whose gradient is zero. Later changes of the optimizer, such as those of a scheduler,
    are not seen: change the table with ``set_option``.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        An `SGD`, `Adam`, `AdamW`, `Adagrad`, `RMSprop` or `Adadelta` of `torch.optim` that has made
        no step, with the same options for all of its parameters.

    Returns
    -------
    tuple of (str, dict)
        ``updater`` and the options of a table, for
        ``mv.MatrixTable(rows, columns, updater=updater, **options)``.

    Raises
    ------
    TypeError, ValueError
        If it is not one of these optimizers, or no updater makes its steps; the text says why.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> layer = torch.nn.Linear(2, 2)
    >>> mv.updaters.from_torch(torch.optim.SGD(layer.parameters(), lr=0.5, momentum=0.75))
    ('momentum', {'learning_rate': 0.5, 'momentum': 0.75})

    """
    name = _class_of(optimizer, "torch.optim", _TORCH)
    what = f"torch.optim.{name}"
    groups = [
        {key: value for key, value in group.items() if key not in _TORCH_IMPLEMENTATIONS}
        for group in optimizer.param_groups
    ]
    if any(group != groups[0] for group in groups):
        _differs(what, "its groups of parameters have different options; take one table for each")
    group = groups[0]
    if group.get("maximize"):
        _differs(what, "maximize=True ascends")
    if name != "SGD" and any(_number(s.get("step", 0)) for s in optimizer.state.values()):
        _differs(what, "it has made steps, whose state a new table lacks")
    options = {"learning_rate": _number(group["lr"])}
    decay = _number(group.get("weight_decay", 0))
    is_decoupled = group.get("decoupled_weight_decay", name == "AdamW")
    is_plain_sgd = name == "SGD" and not group["momentum"]
    if decay and not is_decoupled and not is_plain_sgd:
        _differs(
            what,
            f"weight_decay={decay!r} is a part of its gradients (L2), while that of the updaters "
            f"shrinks the parameters themselves; AdamW does so too",
        )
    updater, more = _TORCH[name](what, group)
    if name == "AdamW" and updater == "adam":
        updater = "adamw"
    options |= more
    return updater, options | ({"weight_decay": decay} if decay or updater == "adamw" else {})


def from_keras(optimizer: Any) -> tuple[str, dict[str, float]]:
    """Return the updater and the options that make the steps of an optimizer of Keras 3.

    What the table then does, and the result, are as for `from_torch`. In sync mode, no table has
    the ``clipnorm`` of an optimizer.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        An `SGD`, `Adam`, `AdamW`, `Adagrad`, `RMSprop`, `Adadelta` or `Ftrl` of `keras.optimizers`
        that has made no step.

    Returns
    -------
    tuple of (str, dict)
        ``updater`` and the options of a table, for
        ``mv.MatrixTable(rows, columns, updater=updater, **options)``.

    Raises
    ------
    TypeError, ValueError
        If it is not one of these optimizers, or no updater makes its steps; the text says why.

    Examples
    --------
    >>> import keras
    >>> import multiverso as mv
    >>> mv.updaters.from_keras(keras.optimizers.SGD(0.5, momentum=0.75, nesterov=True))
    ('nesterov', {'learning_rate': 0.5, 'momentum': 0.75})

    """
    name = _class_of(optimizer, "keras", _KERAS)
    what = f"keras.optimizers.{name}"
    if optimizer._learning_rate is not optimizer.learning_rate:
        _differs(what, "its learning rate follows a schedule; give a number, and use set_option")
    for option, difference in (
        ("global_clipnorm", "the norm of all parameters, which a table does not know"),
        ("use_ema", "averages of the parameters, which a table does not keep"),
        ("loss_scale_factor", "gradients that are scaled; pass the factor to the layer's step"),
        ("gradient_accumulation_steps", "several gradients; add their mean instead"),
    ):
        if value := getattr(optimizer, option):
            _differs(what, f"{option}={value!r} uses {difference}")
    if any(
        getattr(optimizer, f"_exclude_from_weight_decay{kind}", None) for kind in ("", "_pattern")
    ):
        _differs(what, "it excludes variables from its weight decay")
    if name != "SGD" and _number(optimizer.iterations):
        _differs(what, "it has made steps, whose state a new table lacks")
    found = _KERAS[name]
    updater, names = found(what, optimizer) if callable(found) else found
    if name == "AdamW" and updater == "adam":
        updater = "adamw"
    options = {key: _number(getattr(optimizer, key)) for key in ("learning_rate", *names)}
    for option in ("weight_decay", "clipnorm", "clipvalue"):
        value = _number(getattr(optimizer, option) or 0)
        if value or (option == "weight_decay" and updater == "adamw"):
            options[option] = value
    return updater, options


def _torch_sgd(what: str, group: Any) -> tuple[str, dict[str, float]]:
    momentum = _number(group["momentum"])
    if not momentum:
        return "sgd", {}
    if dampening := _number(group["dampening"]):
        _differs(what, f"dampening={dampening!r} shrinks all gradients but the first")
    return "nesterov" if group["nesterov"] else "momentum", {"momentum": momentum}


def _torch_adam(what: str, group: Any) -> tuple[str, dict[str, float]]:
    beta_1, beta_2 = map(_number, group["betas"])
    options = {"beta_1": beta_1, "beta_2": beta_2, **_outer_epsilon(group)}
    return "amsgrad" if group["amsgrad"] else "adam", options


def _torch_adagrad(what: str, group: Any) -> tuple[str, dict[str, float]]:
    if decay := _number(group["lr_decay"]):
        _differs(what, f"lr_decay={decay!r} lowers the learning rate; use set_option")
    initial = _number(group["initial_accumulator_value"])
    return "adagrad", {"initial_accumulator_value": initial, **_outer_epsilon(group)}


def _torch_rmsprop(what: str, group: Any) -> tuple[str, dict[str, float]]:
    _require_not_centered(what, group["centered"])
    options = {"rho": _number(group["alpha"]), "momentum": _number(group["momentum"])}
    return "rmsprop", options | _outer_epsilon(group)


def _torch_adadelta(what: str, group: Any) -> tuple[str, dict[str, float]]:
    return "adadelta", {"rho": _number(group["rho"]), "epsilon": _number(group["eps"])}


def _outer_epsilon(group: Any) -> dict[str, float]:
    return {"epsilon": _NO_EPSILON, "outer_epsilon": _number(group["eps"])}


_TORCH: Final = {
    "SGD": _torch_sgd,
    "Adam": _torch_adam,
    "AdamW": _torch_adam,
    "Adagrad": _torch_adagrad,
    "RMSprop": _torch_rmsprop,
    "Adadelta": _torch_adadelta,
}


def _keras_sgd(what: str, optimizer: Any) -> tuple[str, tuple[str, ...]]:
    if not optimizer.momentum:
        return "sgd", ()
    return "nesterov" if optimizer.nesterov else "momentum", ("momentum",)


def _keras_adam(what: str, optimizer: Any) -> tuple[str, tuple[str, ...]]:
    return "amsgrad" if optimizer.amsgrad else "adam", ("beta_1", "beta_2", "epsilon")


def _keras_rmsprop(what: str, optimizer: Any) -> tuple[str, tuple[str, ...]]:
    _require_not_centered(what, optimizer.centered)
    return "rmsprop", ("rho", "momentum", "epsilon")


#: The updater of each optimizer, with the options that have the same names in both, or a function
#: that returns them.
_KERAS: Final[dict[str, Any]] = {
    "SGD": _keras_sgd,
    "Adam": _keras_adam,
    "AdamW": _keras_adam,
    "Adagrad": ("adagrad", ("initial_accumulator_value", "epsilon")),
    "RMSprop": _keras_rmsprop,
    "Adadelta": ("adadelta", ("rho", "epsilon")),
    "Ftrl": (
        "ftrl",
        (
            *("learning_rate_power", "initial_accumulator_value", "beta"),
            *("l1_regularization_strength", "l2_regularization_strength"),
            "l2_shrinkage_regularization_strength",
        ),
    ),
}


def _require_not_centered(what: str, is_centered: object) -> None:
    if is_centered:
        _differs(what, "centered=True subtracts the mean of the gradients")


def _class_of(optimizer: Any, package: str, known: dict[str, Any]) -> str:
    """Return the name of a known optimizer's class, since a subclass may make other steps."""
    kind = type(optimizer)
    is_of_package = kind.__module__ == package or kind.__module__.startswith(f"{package}.")
    if not is_of_package or kind.__name__ not in known:
        names = ", ".join(known)
        raise TypeError(
            f"optimizer: expected one of {package}'s {names}, received a "
            f"{kind.__module__}.{kind.__qualname__}; no updater makes the steps of another"
        )
    return kind.__name__


def _differs(what: str, difference: str) -> NoReturn:
    msg = f"optimizer: expected one whose steps an updater makes, received {what}: {difference}"
    raise ValueError(msg)


def _number(value: Any) -> float:
    """Return a number as a float, also one that a tensor or a variable contains."""
    return float(value) if hasattr(value, "__float__") else float(value.numpy())
