"""The formulas of the updaters in NumPy, with one rounding per operation, for several rows at once.

Tables are compared with them bit by bit, so the order of operations matters.
"""

import numpy as np

from multiverso._native.supported import refusal_of

#: The options of each updater that tests use; most values differ from the defaults.
OPTIONS = {
    "add": {},
    "sgd": {"learning_rate": 0.1},
    "momentum": {"learning_rate": 0.1, "momentum": 0.7},
    "nesterov": {"learning_rate": 0.1, "momentum": 0.7},
    "adagrad": {"learning_rate": 0.3, "initial_accumulator_value": 0.2, "epsilon": 1e-5},
    "rmsprop": {"learning_rate": 0.03, "rho": 0.8, "momentum": 0.0, "epsilon": 1e-6},
    "adadelta": {"learning_rate": 0.9, "rho": 0.8, "epsilon": 1e-3},
    "adam": {"learning_rate": 0.03, "beta_1": 0.8, "beta_2": 0.97, "epsilon": 1e-6},
    "easgd": {"elastic_force": 0.3},
    "dcasgd": {"learning_rate": 0.1, "variance_control": 0.6},
    "ftrl": {
        "learning_rate": 0.3,
        "learning_rate_power": -0.5,
        "initial_accumulator_value": 0.2,
        "l1_regularization_strength": 0.4,
        "l2_regularization_strength": 0.3,
        "l2_shrinkage_regularization_strength": 0.1,
        "beta": 0.7,
    },
    "dcasgda": {"learning_rate": 0.1, "variance_control": 0.6, "rho": 0.8, "epsilon": 1e-6},
    "adamw": {
        "learning_rate": 0.03,
        "beta_1": 0.8,
        "beta_2": 0.97,
        "epsilon": 1e-6,
        "weight_decay": 0.2,
        "clipvalue": 0.9,
    },
    "amsgrad": {
        "learning_rate": 0.03,
        "beta_1": 0.8,
        "beta_2": 0.7,
        "epsilon": 1e-30,
        "outer_epsilon": 1e-4,
    },
    "rowwise_adagrad": {"learning_rate": 0.3, "epsilon": 1e-5},
    "rowwise_adam": {"learning_rate": 0.03, "beta_1": 0.8, "beta_2": 0.97, "epsilon": 1e-6},
}

COUNTING = ("adam", "adamw", "amsgrad", "rowwise_adam")


def features_of(updater):
    """Return the features of the updater with that name (`multiverso._native.supported`)."""
    if updater == "add":
        return {"add"}
    kinds = {
        "counting updater": updater in COUNTING,
        "row-wise updater": updater.startswith("rowwise"),
        "dcasgd": updater.startswith("dcasgd"),
        "easgd": updater == "easgd",
    }
    return {"updater", *(name for name, applies in kinds.items() if applies)}


#: The options of the updaters that arrays accept.
ARRAY_OPTIONS = {
    name: options
    for name, options in OPTIONS.items()
    if refusal_of(*features_of(name), "array") is None
}


def square_sums(rows, dtype):
    """Return the sums of the squares of rows, in a dtype and in the order of the library."""
    count, columns = rows.shape
    squares = np.zeros((count, 16 * (columns // 16 + 1)), dtype)
    squares[:, :columns] = np.square(rows, dtype=dtype)
    sums = np.add.accumulate(squares.reshape(count, columns // 16 + 1, 16), axis=1)[:, -1]
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums


def _mean_squares(rows):
    return square_sums(rows, rows.dtype) / rows.dtype.type(rows.shape[1])


def _root(values, options):
    power = -options["learning_rate_power"]
    return np.sqrt(values) if power == 0.5 else values ** values.dtype.type(power)


def apply(updater, options, w, state, d, steps, terms, seen):
    """Return parameters and state after an update of rows of both.

    Parameters
    ----------
    updater : str
        The name of the updater.
    options : dict of str to float
        All its options.
    w, d : ndarray
        The parameters, and the deltas or the sums of deltas.
    state : tuple of three ndarray
        The state, of the same shape.
    steps : ndarray of int, shape (rows, 1)
        The numbers of the updates of the rows.
    terms : ndarray of int, shape (rows, 1)
        Of how many deltas each sum is.
    seen : ndarray
        The parameters that the worker has received, and NaN where it has received none.

    """
    real = w.dtype.type  # converts to the table's dtype, as the library does
    option = {name: real(value) for name, value in options.items()}
    a, b, c = state
    rate, epsilon = option.get("learning_rate"), option.get("epsilon")
    outer = option.get("outer_epsilon", real(0))
    if option.get("weight_decay"):
        w = w - w * option["weight_decay"] * rate
    if option.get("clipvalue"):
        limit = option["clipvalue"]
        d = np.where(d < -limit, -limit, np.where(d > limit, limit, d))
    match updater:
        case "add":
            w = w + d
        case "sgd":
            w = w - rate * d
        case "momentum":
            a = a * option["momentum"] - d * rate
            w = w + a
        case "nesterov":
            a = a * option["momentum"] - d * rate
            w = w + (a * option["momentum"] - d * rate)
        case "adagrad":
            a = np.where(a == 0, option["initial_accumulator_value"], a) + d * d
            w = w - rate * d / (np.sqrt(a + epsilon) + outer)
        case "rmsprop":
            a = option["rho"] * a + real(1 - options["rho"]) * (d * d)
            step = rate * d / (np.sqrt(a + epsilon) + outer)
            if option["momentum"]:
                b = step = option["momentum"] * b + step
            w = w - step
        case "adadelta":
            keep, take = option["rho"], real(1 - options["rho"])
            a = keep * a + take * (d * d)
            step = -(np.sqrt(b + epsilon) * d / np.sqrt(a + epsilon))
            b = keep * b + take * (step * step)
            w = w + rate * step
        case "adam" | "adamw" | "amsgrad" | "rowwise_adam":
            w, a, b, c = _adam(updater, options, w, (a, b, c), d, steps)
        case "rowwise_adagrad":
            a = a + _mean_squares(d)
            w = w - rate / (np.sqrt(a) + epsilon) * d
        case "easgd":
            here = terms.astype(w.dtype) * w
            w = w + option["elastic_force"] * np.where(d == here, real(0), d - here)
        case "dcasgd" | "dcasgda":
            gap = np.where(np.isnan(seen), real(0), w - seen)
            control = option["variance_control"]
            if updater == "dcasgda":
                a = option["rho"] * a + real(1 - options["rho"]) * (d * d)
                control = control / np.sqrt(a + epsilon)
            w = w - rate * (d + control * (d * d) * gap)
        case "ftrl":
            before = np.where(a == 0, option["initial_accumulator_value"], a)
            a = before + d * d
            old_root, root = _root(before, options), _root(a, options)
            l1 = option["l1_regularization_strength"]
            l2 = 2 * options["l2_regularization_strength"]
            l2 = real(l2 + options["beta"] / options["learning_rate"])
            shrinkage = real(2 * options["l2_shrinkage_regularization_strength"])
            b = b + (d + shrinkage * w - (root - old_root) / rate * w)
            w = (np.clip(b, -l1, l1) - b) / (root / rate + l2)
    return w, (a, b, c)


def _adam(updater, options, w, state, d, steps):
    real, (a, b, c) = w.dtype.type, state
    beta_1, beta_2 = options["beta_1"], options["beta_2"]
    rates, roots = np.empty(steps.shape), np.empty(steps.shape)
    for t in np.unique(steps).tolist():  # The powers are those of the C library, as in Python.
        root = (1 - beta_2**t) ** 0.5
        rates[steps == t] = options["learning_rate"] * root / (1 - beta_1**t)
        roots[steps == t] = root
    rates = rates.astype(w.dtype)
    a = a + (d - a) * real(1 - beta_1)
    if updater == "rowwise_adam":
        b = b + (_mean_squares(d) - b) * real(1 - beta_2)
        epsilons = (options["epsilon"] * roots).astype(w.dtype)
        return w - a * (rates / (np.sqrt(b) + epsilons)), a, b, c
    b = b + (d * d - b) * real(1 - beta_2)
    c = np.maximum(c, b)
    square = c if updater == "amsgrad" else b
    epsilons = (options["epsilon"] + options.get("outer_epsilon", 0) * roots).astype(w.dtype)
    return w - a * rates / (np.sqrt(square) + epsilons), a, b, c
