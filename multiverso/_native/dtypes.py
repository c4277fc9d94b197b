"""The dtypes of tables: their codes in the C API, and which of them keeps a model's parameters."""

from typing import Any, Final

import numpy as np

from multiverso._native import capi

#: The dtypes of tables, by code in the C API. `table_dtype` returns these objects, so that code
#: for small arrays can compare a table's dtype with ``is``.
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
        given = None if dtype is None else np.dtype(dtype)  # type: ignore[call-overload]
    except Exception:  # NumPy's parser also raises errors such as SyntaxError and KeyError.
        given = None
    # None is excluded because NumPy considers it equal to float64.
    if given is None or given not in CODES:
        allowed = ", ".join(map(str, CODES))
        msg = f"dtype: expected one of {allowed}, received {dtype!r}"
        raise TypeError(msg)
    return CODES[given], DTYPES[CODES[given]]


def require_table_dtype(dtype: str, what: str, average: bool = False) -> None:
    """Raise TypeError unless tables can keep parameters of `dtype`; `what` names the parameters.

    With `average`, the dtype must also not be one of integers.
    """
    if dtype not in TABLE_DTYPES:
        allowed = ", ".join(TABLE_DTYPES)
        msg = f"{what}: expected one of the dtypes {allowed}, received {dtype}"
        raise TypeError(msg)
    if average and TABLE_DTYPES[dtype].kind != "f":
        msg = (
            f"{what}: expected floats with average=True, received {dtype}; integers can only be"
            " summed, so convert them to floats or synchronize them without average"
        )
        raise TypeError(msg)
