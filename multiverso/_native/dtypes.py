"""The dtypes of tables and of arrays: their codes, and which of them keeps a model's parameters."""

from typing import Any, Final, NamedTuple

import numpy as np

from multiverso._extras import needs
from multiverso._native import capi

#: The dtypes of deltas and results, by code in the C API. `value_dtype` returns these objects, so
#: that code for small arrays can compare a table's dtype with ``is``.
DTYPES: Final[dict[int, np.dtype[Any]]] = {
    capi.MV_FLOAT32: np.dtype(np.float32),
    capi.MV_FLOAT64: np.dtype(np.float64),
    capi.MV_INT32: np.dtype(np.int32),
    capi.MV_INT64: np.dtype(np.int64),
}

#: The inverse of `DTYPES`.
TABLE_CODES: Final[dict[np.dtype[Any], int]] = {dtype: code for code, dtype in DTYPES.items()}

#: The names of the types of 16 bits in which a table can store float32 values, by code.
_HALVES: Final = {capi.MV_FLOAT16: "float16", capi.MV_BFLOAT16: "bfloat16"}

#: The dtypes of arrays that can be aggregated but are no dtypes of tables, by code.
_ARRAY_ONLY: Final[dict[int, np.dtype[Any]]] = {
    capi.MV_FLOAT16: np.dtype(np.float16),
    capi.MV_INT8: np.dtype(np.int8),
    capi.MV_INT16: np.dtype(np.int16),
    capi.MV_UINT8: np.dtype(np.uint8),
    capi.MV_BOOL: np.dtype(np.bool_),
}

#: The codes of all dtypes of arrays except bfloat16, which is a dtype of another package.
ARRAY_CODES: Final = {**TABLE_CODES, **{dtype: code for code, dtype in _ARRAY_ONLY.items()}}

#: The dtype of the table that keeps a model's parameters, by the name of the parameters' dtype.
#: Half precision is summed in float32. bfloat16 is a dtype of the package ml_dtypes.
TABLE_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),
    **{dtype.name: dtype for dtype in TABLE_CODES},
}


class TableDtype(NamedTuple):
    """How a table stores its parameters."""

    #: The code in the C API.
    code: int
    #: The dtype of the parameters in the table and in checkpoints.
    stored: np.dtype[Any]
    #: The dtype of deltas, results and state: float32 if the parameters have 16 bits.
    values: np.dtype[Any]

    @classmethod
    def of_code(cls, code: int) -> "TableDtype":
        """Return the dtype with a code of the C API."""
        if code not in _HALVES:
            return cls(code, DTYPES[code], DTYPES[code])
        return cls(code, _half(_HALVES[code]), DTYPES[capi.MV_FLOAT32])


def _half(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        with needs("a table of bfloat16", ml_dtypes="bfloat16"):
            import ml_dtypes  # noqa: F401 (the import adds the dtype to NumPy)
    return np.dtype(name)


#: What NumPy's parser raises. Other exceptions come from signal handlers, and are not caught.
_UNKNOWN: Final = (TypeError, ValueError, SyntaxError, LookupError, AttributeError, ArithmeticError)


def _parsed(dtype: object) -> np.dtype[Any] | None:
    """Return the NumPy dtype that an object means, or None if NumPy does not know it."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return _half(dtype)
    try:
        # None is excluded because NumPy considers it equal to float64.
        return None if dtype is None else np.dtype(dtype)  # type: ignore[call-overload]
    except _UNKNOWN:
        return None


def _wrong_dtype(dtype: object, allowed: list[str]) -> TypeError:
    return TypeError(f"dtype: expected one of {', '.join(allowed)}, received {dtype!r}")


def table_dtype(dtype: object) -> TableDtype:
    """Return how a table stores `dtype`, which has any form that NumPy accepts."""
    given = _parsed(dtype)
    if given is not None:
        for code, name in _HALVES.items():
            if given.name == name and given.isnative:
                return TableDtype(code, given, DTYPES[capi.MV_FLOAT32])
        if given in TABLE_CODES:
            return TableDtype.of_code(TABLE_CODES[given])
    raise _wrong_dtype(dtype, [*map(str, TABLE_CODES), *_HALVES.values()])


def array_code(dtype: np.dtype[Any]) -> int:
    """Return the code of an array's dtype; raise TypeError if it cannot be aggregated."""
    if dtype.name == "bfloat16":
        return capi.MV_BFLOAT16
    if dtype not in ARRAY_CODES:
        raise _wrong_dtype(dtype, [*map(str, ARRAY_CODES), "bfloat16"])
    return ARRAY_CODES[dtype]


def require_table_dtype(dtype: str, what: str) -> None:
    """Raise TypeError unless tables can keep parameters of `dtype`; `what` names the parameters."""
    if dtype not in TABLE_DTYPES:
        allowed = ", ".join(TABLE_DTYPES)
        raise TypeError(f"{what}: expected one of the dtypes {allowed}, received {dtype}")
