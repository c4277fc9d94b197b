"""The formulas of the updaters in NumPy, with one rounding per operation.

Tests compare tables with this model bit by bit, so the order of operations matters.
"""

import numpy as np
from half_model import HALVES, round_stochastically

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


def features_of(updater):
    """Return the features of the updater with that name (`multiverso._native.supported`)."""
    kinds = {"dcasgd": "dcasgd", "dcasgda": "dcasgd"}
    kinds |= {name: "row-wise updater" for name in OPTIONS if name.startswith("rowwise")}
    return {"add"} if updater == "add" else {"updater", kinds.get(updater, "updater")}


#: The options of the updaters that array tables accept.
ARRAY_OPTIONS = {
    name: options
    for name, options in OPTIONS.items()
    if refusal_of(*features_of(name), "array") is None
}

#: The options of the updaters that matrices, hash tables, all modes and several nodes accept.
MATRIX_OPTIONS = {
    name: options
    for name, options in OPTIONS.items()
    if refusal_of(*features_of(name), "matrix") is None
}


def square_sum(values, dtype):
    """Return the sum of the squares of numbers, in a dtype and in the order of the library."""
    squares = np.zeros((len(values) // 16 + 1, 16), dtype)
    squares.flat[: len(values)] = np.square(values, dtype=dtype)
    sums = np.add.accumulate(squares)[-1]
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return sums[0]


def mean_square(row):
    """Return the mean of the squares of a row."""
    return square_sum(row, row.dtype) / row.dtype.type(len(row))


def accepts(updater, shape):
    """Return whether a table of that shape can have the updater."""
    if len(shape) == 1:
        return updater in ARRAY_OPTIONS
    return updater in MATRIX_OPTIONS and ("rowwise" not in updater or shape[1] <= 2048)


class Model:
    """The rows of a table, each with its own state; the first axis of `initial` counts rows.

    An array table has one row. A test gives all options of the updater and may change them between
    updates. `stored` names the type of 16 bits in which the table stores float32 values, if any.
    """

    def __init__(self, updater, initial, workers=1, stored=None, **options):
        self.updater = updater
        self.stored = stored
        self.values = initial.astype(HALVES.get(stored, initial.dtype)).astype(initial.dtype)
        self.options = options
        self.steps = [0] * len(initial)
        self.state = [np.zeros_like(initial) for _ in range(3)]
        self.seen = [[None] * len(initial) for _ in range(workers)]

    def get(self, worker=0, rows=None):
        """Return rows, and record that this worker has seen these values."""
        rows = range(len(self.values)) if rows is None else rows
        for row in rows:
            self.seen[worker][row] = self.values[row].copy()
        return self.values[list(rows)]

    def add(self, delta, rows=None, worker=0, terms=1):
        """Apply the delta of a worker, or the sum of `terms` deltas if `worker` is None."""
        rows = range(len(self.values)) if rows is None else rows
        is_linear = not any(
            self.options.get(option) for option in ("weight_decay", "clipnorm", "clipvalue")
        )
        if self.updater in ("add", "sgd") and is_linear:
            for position, row in enumerate(rows):
                self._update(row, delta[position], worker, terms)
            return
        total = {}
        for position, row in enumerate(rows):
            total[row] = total[row] + delta[position] if row in total else delta[position]
        for row, values in self._clip_norm(total, is_sorted=len(total) < len(rows)).items():
            self._update(row, values, worker, terms)

    def _clip_norm(self, total, is_sorted):
        """Return the gradients of rows, clipped to a norm of all of them."""
        limit = self.options.get("clipnorm")
        if not limit or not total:
            return total
        # The library sorts rows where it sums them.
        named = sorted(total) if is_sorted else total
        norm = square_sum(np.concatenate([total[row] for row in named]), np.float64) ** 0.5
        if norm <= limit:
            return total
        return {row: values * values.dtype.type(limit / norm) for row, values in total.items()}

    def _update(self, row, d, worker, terms):
        real = self.values.dtype.type  # converts to the table's dtype, as the library does
        option = {name: real(value) for name, value in self.options.items()}
        self.steps[row] += 1
        w, (a, b, c) = self.values[row], (state[row] for state in self.state)
        rate = option.get("learning_rate")
        epsilon = option.get("epsilon")
        outer = option.get("outer_epsilon", real(0))
        if option.get("weight_decay"):
            w = w - w * option["weight_decay"] * rate
        if option.get("clipvalue"):
            d = np.clip(d, -option["clipvalue"], option["clipvalue"])
        match self.updater:
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
                if self.steps[row] == 1:
                    a = np.full_like(a, option["initial_accumulator_value"])
                a = a + d * d
                w = w - rate * d / (np.sqrt(a + epsilon) + outer)
            case "rmsprop":
                a = option["rho"] * a + real(1 - self.options["rho"]) * (d * d)
                b = option["momentum"] * b + rate * d / (np.sqrt(a + epsilon) + outer)
                w = w - b
            case "adadelta":
                keep, take = option["rho"], real(1 - self.options["rho"])
                a = keep * a + take * (d * d)
                step = -(np.sqrt(b + epsilon) * d / np.sqrt(a + epsilon))
                b = keep * b + take * (step * step)
                w = w + rate * step
            case "adam" | "adamw" | "amsgrad" | "rowwise_adam":
                beta_1, beta_2 = self.options["beta_1"], self.options["beta_2"]
                t = self.steps[row]
                root = (1 - beta_2**t) ** 0.5
                rate = self.options["learning_rate"] * root / (1 - beta_1**t)
                outer = self.options.get("outer_epsilon", 0) * root
                a = a + (d - a) * real(1 - beta_1)
                if self.updater == "rowwise_adam":
                    b = b + (mean_square(d) - b) * real(1 - beta_2)
                    epsilon = real(self.options["epsilon"] * root)
                    w = w - a * (real(rate) / (np.sqrt(b) + epsilon))
                else:
                    b = b + (d * d - b) * real(1 - beta_2)
                    c = np.maximum(c, b)
                    square = c if self.updater == "amsgrad" else b
                    epsilon = real(self.options["epsilon"] + outer)
                    w = w - a * real(rate) / (np.sqrt(square) + epsilon)
            case "rowwise_adagrad":
                a = a + mean_square(d)
                w = w - rate / (np.sqrt(a) + epsilon) * d
            case "easgd":
                w = w + option["elastic_force"] * (d - real(terms) * w)
            case "dcasgd" | "dcasgda":
                seen = self.seen[worker][row]
                gap = np.zeros_like(w) if seen is None else w - seen
                control = option["variance_control"]
                if self.updater == "dcasgda":
                    a = option["rho"] * a + real(1 - self.options["rho"]) * (d * d)
                    control = control / np.sqrt(a + epsilon)
                w = w - rate * (d + control * (d * d) * gap)
            case "ftrl":
                if self.steps[row] == 1:
                    a = np.full_like(a, option["initial_accumulator_value"])
                old_root, a = self._root(a), a + d * d
                root = self._root(a)
                l1 = option["l1_regularization_strength"]
                l2 = 2 * self.options["l2_regularization_strength"]
                l2 = real(l2 + self.options["beta"] / self.options["learning_rate"])
                shrinkage = real(2 * self.options["l2_shrinkage_regularization_strength"])
                b = b + (d + shrinkage * w - (root - old_root) / rate * w)
                w = (np.clip(b, -l1, l1) - b) / (root / rate + l2)
        if self.stored:
            first = row * self.values.shape[1]
            w = round_stochastically(w, first, self.steps[row], self.stored)
        self.values[row] = w
        for state, values in zip(self.state, (a, b, c), strict=True):
            state[row] = values

    def _root(self, value):
        power = -self.options["learning_rate_power"]
        return np.sqrt(value) if power == 0.5 else value ** value.dtype.type(power)
