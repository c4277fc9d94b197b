"""Tables to draw: their kinds, shapes, dtypes, updaters, options and initial values."""

import dataclasses
from typing import Any

import numpy as np

import multiverso as mv
from machine import formulas, old_checkpoint
from machine.halves import HALVES
from machine.initial_values import initial_rows, initial_values
from machine.model import Model
from multiverso import initializers
from multiverso._native.supported import refusal_of
from multiverso.tables._updaters import UPDATERS

#: Fewer elements than workers, parts of a vector register, several stripes with a partial last one,
#: and rows larger than a stripe or, between nodes, than a message.
SHAPES = {
    "array": ((1,), (2,), (5,), (37,), (1000,), (16_385,), (40_003,)),
    "matrix": ((1, 1), (7, 3), (9, 5), (5, 1), (40, 64), (2, 1000), (300, 7), (3, 20_000)),
    "keys": ((9, 1), (20, 3), (40, 5), (12, 64), (30, 1500)),
}
#: Keys that a table might reserve for itself, or whose hashes might be special.
SPECIAL_KEYS = (0, -1, 1, 2**63 - 1, -(2**63), 2**32, -(2**32), 0x9E3779B97F4A7C15 - 2**64)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
EXTRA_OPTIONS = {
    "outer_epsilon": 0.25,
    "weight_decay": 0.25,
    "clipvalue": 0.75,
    "clipnorm": 3.0,
    "momentum": 0.5,
}
MAGNITUDES = 10.0 ** np.arange(-6, 5)


@dataclasses.dataclass
class Spec:
    """What a table is; `seed` makes its keys and initial values."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    updater: str
    options: dict[str, float]
    initializer: Any
    wire: str | None
    on_disk: bool
    seed: int
    old_name: str | None = None
    evict: str | None = None

    def features(self):
        """Return the features of the table (`multiverso._native.supported`)."""
        used = {self.kind} | formulas.features_of(self.updater)
        if self.kind != "keys":
            used |= {"dense"} if self.initializer is None else {"lazy"}
        if self.kind == "matrix" and self.initializer is not None:
            used.add("lazy rows")
        optional = {
            "integers": self.dtype.startswith("int"),
            "float64": self.dtype == "float64",
            "16 bit": self.dtype in HALVES,
            "random": hasattr(self.initializer, "seed"),
            "on disk": self.on_disk,
            "clipnorm": bool(self.options.get("clipnorm")),
            "evict": bool(self.evict),
            "wire": bool(self.wire),
            "wire of calls": bool(self.wire),
        }
        return used | {name for name, is_used in optional.items() if is_used}

    @property
    def value_dtype(self):
        """The dtype of deltas and results."""
        return np.dtype("float32" if self.dtype in HALVES else self.dtype)

    @property
    def rows_shape(self):
        """The shape of the rows in the model, of which an array is one."""
        return (1, *self.shape) if self.kind == "array" else self.shape

    @property
    def draws_exactly(self):
        """Whether deltas must have exact sums of squares: those of keys are in any order."""
        return self.kind == "keys"

    def keys(self):
        """Return the keys that programs use, in any order."""
        if self.old_name is not None:
            return old_checkpoint.keys_of(self.shape)
        rng = np.random.default_rng(self.seed)
        special = rng.permutation(SPECIAL_KEYS)[: self.shape[0] // 2]
        keys = np.union1d(special, rng.integers(-(2**63), 2**63, 2 * self.shape[0]))
        keys = rng.permutation(np.setdiff1d(keys, special))[: self.shape[0] - len(special)]
        return rng.permutation(np.concatenate([special, keys]))

    def initial(self, number):
        """Return the initial rows of the table with that number in its session."""
        if self.kind == "keys":
            start = self.initializer or initializers.Zeros()
            return initial_rows(start, self.keys(), self.shape[1], self.value_dtype, number)
        if self.initializer is not None:
            values = initial_values(self.initializer, self.shape, self.value_dtype, number)
        elif self.old_name is not None:
            values = np.zeros(self.shape, self.value_dtype)
        else:
            rng = np.random.default_rng(self.seed)
            values = values_of(rng, self.shape, self.value_dtype)
            if self.dtype in HALVES:
                values = np.clip(values, -60_000, 60_000)
        return values.reshape(self.rows_shape)

    def model(self, number, workers):
        """Return the model of a new table."""
        numbers = self.keys().view(np.uint64) if self.kind == "keys" else None
        stored = self.dtype if self.dtype in HALVES else None
        start = self.initial(number)
        return Model(self.updater, start, workers, stored, numbers, self.wire, **self.options)

    def create(self, name, initial, backing=None, room=4000):
        """Create the table, with these initial values unless it has an initializer.

        A table with keys has room for this many, in which none is ever evicted.
        """
        options = {"dtype": self.dtype, "updater": self.updater, "name": name, **self.options}
        options |= {"backing": backing, "wire": self.wire}
        if self.kind == "keys":
            return mv.HashTable(self.shape[1], room, self.initializer, evict=self.evict, **options)
        start = self.initializer if self.initializer is not None else initial
        kind = mv.ArrayTable if self.kind == "array" else mv.MatrixTable
        return kind(*self.shape, start, **options)


def values_of(rng, shape, dtype):
    """Return random numbers: floats whose sum depends on the order, integers of the whole range.

    Negative zeros reveal a sum that starts at 0 instead of its first term.
    """
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        return np.asarray(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    values = rng.standard_normal(shape) * MAGNITUDES[rng.integers(len(MAGNITUDES), size=shape)]
    return np.where(rng.random(shape) < 0.2, -0.0, values).astype(dtype)


def draw_initializer(rng, dtype):
    """Draw an initializer for tables of a dtype."""
    kinds = [initializers.Zeros(), initializers.Constant(-3)]
    if not dtype.startswith("int"):
        seed = rng.choice((None, 0, 7, 2**40, 2**63 - 1))
        kinds += [
            initializers.RandomUniform(-1, 3, seed=seed),
            initializers.RandomNormal(3, 0.5, seed=seed),
            initializers.TruncatedNormal(1, 2, seed=seed),
        ]
    return rng.choice(kinds)


def draw_old(rng, session, names, refused):
    """Draw a table of the checkpoint of version 0.2, of those with other names."""
    left = [name for name in old_checkpoint.TABLES if name not in names]
    while True:
        name = rng.choice(left)
        kind, shape, dtype, updater, options, initializer = old_checkpoint.TABLES[name]
        options = dict(options)
        spec = Spec(kind, shape, dtype, updater, options, initializer, None, False, 0, name)
        refusal = refusal_of(*session, *spec.features())
        if refusal is None:
            return spec
        refused[refusal.sentence] += 1


def draw(rng, choices, session, refused):
    """Draw a table that goes with the features of a session.

    `choices` has what a configuration lets a table be. Combinations that are refused are counted in
    `refused`, by their sentence.
    """
    for _ in range(1000):
        spec = _draw(rng, choices)
        refusal = refusal_of(*session, *spec.features())
        if refusal is None:
            return spec
        refused[refusal.sentence] += 1
    msg = f"no table of {choices} goes with {session}"
    raise AssertionError(msg)


def _draw(rng, choices):
    kind = rng.choice(choices.get("kind", ("array", "matrix", "matrix", "keys")))
    dtype = rng.choice(choices.get("dtype", DTYPES))
    updaters = ("add",) if dtype.startswith("int") else tuple(formulas.OPTIONS)
    updater = rng.choice(choices.get("updater", updaters))
    shapes = SHAPES[kind]
    if updater.startswith("rowwise"):
        shapes = [shape for shape in shapes if shape[-1] <= 2048]
    options = dict(formulas.OPTIONS[updater])
    for name, value in EXTRA_OPTIONS.items():
        if name in UPDATERS[updater][1] and rng.random() < 0.2:
            options[name] = value
    starts = choices.get("initializer", (False, True))
    is_lazy = kind == "keys" or rng.choice(starts)
    return Spec(
        kind=kind,
        shape=rng.choice(shapes),
        dtype=dtype,
        updater=updater,
        options=options,
        initializer=draw_initializer(rng, dtype) if is_lazy else None,
        wire=choices.get("wire"),
        on_disk=choices.get("on_disk", False),
        seed=rng.randrange(2**32),
        evict=rng.choice((None, None, "lru", "lfu")) if kind == "keys" else None,
    )
