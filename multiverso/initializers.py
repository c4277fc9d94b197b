"""Initial values that take memory only in the rows that a job changes.

An initializer is the `init_value` of a table. The values of a row are a function of the seed, the
row and the column. The table computes them when the row is read, and writes them to memory when the
row is first changed. So a table of any size is created at once, and may be larger than the memory
if few of its rows are used. All values are bitwise identical on any number of ranks and nodes.
Names and defaults are those of Keras.

    initial = mv.initializers.RandomUniform(-0.01, 0.01, seed=7)
    table = mv.MatrixTable(300_000_000, 64, initial)
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from multiverso._native import capi, supported
from multiverso._native.arguments import between, finite, integer

__all__ = [
    "Constant",
    "Initializer",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "Zeros",
]


class Initializer:
    """The base class of the initializers.

    Examples
    --------
    >>> import multiverso as mv
    >>> isinstance(mv.initializers.Zeros(), mv.initializers.Initializer)
    True

    """

    __slots__ = ()
    _kind: ClassVar[int]
    #: The fields with the numbers that the library receives beside the kind and the seed.
    _numbers: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class Zeros(Initializer):
    """Zeros, as without an initializer, but a row takes memory only when it is changed.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.MatrixTable(10**9, 64, mv.initializers.Zeros())
    ...     table.add([[1] * 64], row_ids=[123_456_789])
    ...     table.get(row_ids=[123_456_789, 5])[:, 0]
    array([1., 0.], dtype=float32)

    """

    _kind = capi.MV_INITIALIZER_ZEROS


@dataclass(frozen=True, slots=True)
class Constant(Initializer):
    """The same value everywhere.

    Parameters
    ----------
    value : float, optional
        The value; a table of integers needs an integer that its dtype can hold.

    Raises
    ------
    TypeError, ValueError
        If `value` is not a finite number.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.MatrixTable(10**9, 2, mv.initializers.Constant(0.5))
    ...     table.get([123_456_789])
    array([[0.5, 0.5]], dtype=float32)

    """

    value: float = 0.0
    _kind = capi.MV_INITIALIZER_CONSTANT
    _numbers = ("value",)

    def __post_init__(self) -> None:
        """Check the value."""
        finite(self.value, "value")


@dataclass(frozen=True, slots=True)
class RandomUniform(Initializer):
    """Random values, evenly distributed from `minval` to `maxval`.

    A value is ``minval + u * (maxval - minval)``, computed in float64 and rounded to the dtype of
    the table, where u is a multiple of 2**-24 (float32) or 2**-53 (float64) in [0, 1). The random
    bits are those of Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
    SC 2011).

    Parameters
    ----------
    minval, maxval : float, optional
        The ends of the range.
    seed : int, optional
        From 0 to 2**63 - 1. Tables with the same seed have the same values in the same rows and
        columns. By default the seed follows from the number of the table in its session.

    Raises
    ------
    TypeError, ValueError
        If an argument is no such number, or `minval` is larger than `maxval`.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     initial = mv.initializers.RandomUniform(-1, 1, seed=7)
    ...     mv.MatrixTable(1000, 2, initial).get(row_ids=[999])
    array([[ 0.57023096, -0.46022058]], dtype=float32)

    """

    minval: float = -0.05
    maxval: float = 0.05
    seed: int | None = None
    _kind = capi.MV_INITIALIZER_UNIFORM
    _numbers = ("minval", "maxval")

    def __post_init__(self) -> None:
        """Check the range."""
        least, most = finite(self.minval, "minval"), finite(self.maxval, "maxval")
        if least > most:
            raise ValueError(f"minval: expected at most maxval, received {least} and {most}")
        _check_seed(self.seed)


@dataclass(frozen=True, slots=True)
class RandomNormal(Initializer):
    """Random values with a normal distribution.

    A value is ``mean + stddev * z``, computed in float64 and rounded to the table's dtype. z is
    the inverse normal distribution function (algorithm AS 241, Wichura, Applied Statistics 37,
    1988) of a probability of 32 bits (float32) or 52 bits (float64), which comes from Philox4x32-10
    as for `RandomUniform`.

    Parameters
    ----------
    mean, stddev : float, optional
        The mean and the standard deviation, which is at least 0.
    seed : int, optional
        As for `RandomUniform`.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.MatrixTable(10**9, 2, mv.initializers.RandomNormal(stddev=0.1, seed=7))
    ...     table.get([123_456_789]).shape
    (1, 2)

    """

    mean: float = 0.0
    stddev: float = 0.05
    seed: int | None = None
    _kind = capi.MV_INITIALIZER_NORMAL
    _numbers = ("mean", "stddev")

    def __post_init__(self) -> None:
        """Check the numbers."""
        finite(self.mean, "mean")
        between(self.stddev, "stddev", 0)
        _check_seed(self.seed)


@dataclass(frozen=True, slots=True)
class TruncatedNormal(RandomNormal):
    """Random values with a normal distribution, at most two standard deviations from the mean.

    The values are those of `RandomNormal` with a probability between those of -2 and 2. The
    distribution is that of values which are drawn again if they are further away.

    Parameters
    ----------
    mean, stddev : float, optional
        The mean and the standard deviation of the distribution before it is truncated.
    seed : int, optional
        As for `RandomUniform`.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTable(1000, mv.initializers.TruncatedNormal(stddev=0.1, seed=7))
    ...     bool(abs(table.get()).max() <= 0.2)
    True

    """

    _kind = capi.MV_INITIALIZER_TRUNCATED_NORMAL


def set_initializer(
    raw: capi.MV_TableOptions, initializer: Initializer, dtype: np.dtype[Any]
) -> None:
    """Store an initializer in the options of a table, whose dtype must hold its values."""
    values = tuple(float(getattr(initializer, name)) for name in initializer._numbers)
    if dtype.kind != "f":
        if len(values) > 1:
            supported.check("integers", "random")
        if isinstance(initializer, Constant):
            values = _as_sum(initializer.value, dtype)
    raw.initializer = initializer._kind
    seed = getattr(initializer, "seed", None)
    raw.seed = -1 if seed is None else seed
    for index, value in enumerate(values):
        raw.initializer_values[index] = value


def _as_sum(value: Any, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return an integer as the sum of two floats, of which one alone cannot hold every int64."""
    whole = int(value)
    if value != whole:
        raise TypeError(f"init_value: expected an integer for a table of {dtype}, received {value}")
    first = float(whole)
    if abs(int(first)) > abs(whole):  # It may be above the largest int64.
        first = math.nextafter(first, 0)
    return first, float(whole - int(first))


def _check_seed(seed: object) -> None:
    if seed is not None:
        integer(seed, "seed", 0)
