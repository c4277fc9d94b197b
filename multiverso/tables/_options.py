"""The options that all tables have, with their types and the text that documents them."""

from __future__ import annotations

import inspect
from typing import Any, Final, Literal, TypedDict, TypeVar

from numpy.typing import DTypeLike

from multiverso._native.places import StrPath

_T = TypeVar("_T")

Numa = Literal["interleave"]
Wire = Literal["float32", "bfloat16", "int8"]
UpdaterName = Literal[
    "add",
    "sgd",
    "momentum",
    "nesterov",
    "adagrad",
    "rmsprop",
    "adadelta",
    "adam",
    "adamw",
    "amsgrad",
    "rowwise_adagrad",
    "rowwise_adam",
    "dcasgd",
    "dcasgda",
    "ftrl",
    "easgd",
]


class UpdaterOptions(TypedDict, total=False):
    """The options of all updaters; None means the default.

    Examples
    --------
    >>> import multiverso as mv
    >>> from multiverso.tables import UpdaterOptions
    >>> options: UpdaterOptions = {"learning_rate": 0.1, "momentum": 0.9}
    >>> with mv.session():
    ...     mv.ArrayTable(2, updater="momentum", **options)
    <ArrayTable 'table 0': 2 float32, updater momentum>

    """

    learning_rate: float | None
    momentum: float | None
    initial_accumulator_value: float | None
    rho: float | None
    beta_1: float | None
    beta_2: float | None
    epsilon: float | None
    outer_epsilon: float | None
    variance_control: float | None
    learning_rate_power: float | None
    l1_regularization_strength: float | None
    l2_regularization_strength: float | None
    l2_shrinkage_regularization_strength: float | None
    beta: float | None
    elastic_force: float | None
    weight_decay: float | None
    clipnorm: float | None
    clipvalue: float | None


class TableOptions(UpdaterOptions, total=False):
    """The options that all tables have.

    The docstring of each table repeats this text.

    Parameters
    ----------
    dtype : {"float32", "float64", "int32", "int64", "float16", "bfloat16"}, optional
        The type in which the parameters are stored, in any form that NumPy accepts. With float16
        and bfloat16, deltas, results and state are float32, and an add rounds the new parameters
        stochastically, so that small steps are not lost on average. bfloat16 needs ml_dtypes.
    updater : str, optional
        How `add` applies a delta. "add" makes ``w += delta``. "sgd", "momentum", "nesterov",
        "adagrad", "rmsprop", "adadelta", "adam", "adamw", "amsgrad", "rowwise_adagrad",
        "rowwise_adam", "dcasgd", "dcasgda" and "ftrl" make one step of that optimizer, with the
        delta as the gradient; the row-wise ones are for rows, and "dcasgd" and "dcasgda" for arrays
        in async mode on one node. "easgd" makes ``w += elastic_force * (delta - w)``, with the
        worker's own parameters as the delta.
        In matrices and hash tables, the updaters keep their state per element, and "adam" counts
        the updates of each row, so that an add to some rows has no effect on the others.
        docs/updaters.md has the formulas and their sources. All but "add" require floating-point
        numbers.
    name : str, optional
        The name in messages and checkpoints; by default "table N", counted per session.
    max_bytes : int, optional
        The most bytes of parameters and state on each node, counted in rows that have been changed.
        A call that needs more raises `MemoryError` and changes nothing. Without an initializer, it
        implies ``initializers.Zeros()``. By default, the memory of the machine is the limit.
    backing : str or os.PathLike, optional
        A folder on a disk in which the table lies instead of in memory, so that it may be larger
        than the memory, and is there at once in the next session. The folder is the same on all
        ranks, and each node has files of its own in it. If the last session that used them has
        ended without an error, the table has their rows (`reopened`) and `init_value` is not used;
        if not, a `StateError` says how to go on. A call for whose rows the disk has no room raises
        `MemoryError` and changes nothing. docs/tables-on-disk.md describes it.
    numa : {"interleave"}, optional
        Spreads the memory over the NUMA nodes of the machine. By default a page is where the rank
        runs that touches it first.
    wire : {"float32", "bfloat16", "int8"}, optional
        In sync mode, how sums and results of float32 travel between nodes: "bfloat16" halves their
        bytes, and "int8" divides them by 3.94. Sums are then rounded at random, so that the
        expected value is exact. docs/slow-links.md describes the formats. On one node, it changes
        nothing. In other modes, `multiverso.sync.ParamSync` has an option ``wire``.
    **options : float
        Options of the updater, with the names that Keras uses; None means the default.
        In the order of `updater` above: learning_rate (0.01 for "sgd", "momentum", "nesterov",
        "dcasgd" and "dcasgda", 0.001 for the others), momentum (0.9; 0 for "rmsprop"),
        initial_accumulator_value (0.1), rho (0.9 for "rmsprop", 0.95 for the others), beta_1 (0.9),
        beta_2 (0.999), epsilon (1e-7), variance_control (0.04 for "dcasgd", 2 for "dcasgda"),
        learning_rate_power (-0.5), l1_regularization_strength, l2_regularization_strength,
        l2_shrinkage_regularization_strength and beta (0), elastic_force (0.1), outer_epsilon
        (0), weight_decay (0; 0.004 for "adamw"), clipnorm and clipvalue (0, for none).

    Examples
    --------
    >>> import multiverso as mv
    >>> from multiverso.tables import TableOptions
    >>> options: TableOptions = {"dtype": "float64", "name": "w"}
    >>> with mv.session():
    ...     mv.ArrayTable(2, **options)
    <ArrayTable 'w': 2 float64, updater add>

    """

    dtype: DTypeLike
    updater: UpdaterName
    name: str | None
    max_bytes: int | None
    backing: StrPath | None
    numa: Numa | None
    wire: Wire | None


#: The options that are not of the updater, with their defaults.
DEFAULTS: Final[dict[str, Any]] = {
    "dtype": "float32",
    "updater": "add",
    "name": None,
    "max_bytes": None,
    "backing": None,
    "numa": None,
    "wire": None,
}

#: The first of the two lines that stand for the text in the source of a class.
_PLACE: Final = "dtype, updater, name, max_bytes, backing, numa, wire, **options : optional"


def document_options(table: type[_T]) -> type[_T]:
    """Put `TableOptions` in the signature of a class, and what documents them in its docstring."""
    constructor: Any = table.__init__
    *own, updater_options = inspect.signature(constructor).parameters.values()
    types: dict[str, Any] = TableOptions.__annotations__
    common = [
        inspect.Parameter(
            *(name, inspect.Parameter.KEYWORD_ONLY),
            **{"default": default, "annotation": types[name].__forward_arg__},
        )
        for name, default in DEFAULTS.items()
    ]
    rest = updater_options.replace(annotation="Unpack[UpdaterOptions]")
    constructor.__signature__ = inspect.Signature([*own, *common, rest], return_annotation="None")
    if table.__doc__ is not None and TableOptions.__doc__ is not None:  # -OO leaves them out.
        text = inspect.cleandoc(TableOptions.__doc__).split("----------\n")[1]
        lines = inspect.cleandoc(table.__doc__).splitlines()
        at = lines.index(_PLACE)
        table.__doc__ = "\n".join([*lines[:at], text, *lines[at + 2 :]])
    return table
