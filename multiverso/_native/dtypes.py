"""The dtypes that tables can have, for the C library, for NumPy and for the adapters."""

from typing import Any, Final

import numpy as np

from multiverso._native import capi

#: The dtypes of tables, by their code in the C API.
DTYPES: Final[dict[int, np.dtype[Any]]] = {
    capi.MV_FLOAT32: np.dtype(np.float32),
    capi.MV_FLOAT64: np.dtype(np.float64),
    capi.MV_INT32: np.dtype(np.int32),
    capi.MV_INT64: np.dtype(np.int64),
}

#: The inverse of `DTYPES`.
CODES: Final[dict[np.dtype[Any], int]] = {dtype: code for code, dtype in DTYPES.items()}

#: The dtype of the table that keeps a model's parameters, by the name of the parameters' dtype.
#: Half precision is summed in float32. bfloat16 is a dtype of the package ml_dtypes.
TABLE_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),
    **{dtype.name: dtype for dtype in CODES},
}


def table_dtype(dtype: object) -> tuple[int, np.dtype[Any]]:
    """Return the code and the NumPy dtype of a table's `dtype`, in any form that NumPy accepts.

    Raises
    ------
    TypeError
        If no table can have this dtype.

    """
    try:
        wanted = None if dtype is None else np.dtype(dtype)  # type: ignore[call-overload]
    except Exception:  # NumPy's parser also raises errors such as SyntaxError and KeyError.
        wanted = None
    # None is excluded because NumPy considers it equal to float64.
    if wanted is None or wanted not in CODES:
        known = ", ".join(map(str, CODES))
        msg = f"dtype: expected one of {known}, received {dtype!r}"
        raise TypeError(msg)
    return CODES[wanted], DTYPES[CODES[wanted]]


def require_table_dtype(dtype: str, what: str) -> None:
    """Raise TypeError unless tables can keep parameters of `dtype`; `what` names the parameters."""
    if dtype not in TABLE_DTYPES:
        known = ", ".join(TABLE_DTYPES)
        msg = f"{what}: expected one of the dtypes {known}, received {dtype}"
        raise TypeError(msg)
