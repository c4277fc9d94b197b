"""Writes the rows of hash tables to Parquet files, which other tools read."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._extras import needs
from multiverso._native import files, places


def write(
    path: str | os.PathLike[str],
    num_col: int,
    dtype: np.dtype[Any],
    parts: Iterable[tuple[NDArray[np.int64], NDArray[Any]]],
) -> None:
    """Write parts of a table: keys and their rows.

    The columns are ``key``, int64, and ``row``, a list of `num_col` numbers. The file is replaced
    when it is complete.
    """
    complete = places.path(path, "path")
    with needs("to_parquet", pyarrow="parquet"):
        import pyarrow
        import pyarrow.parquet
    row_type = pyarrow.list_(pyarrow.from_numpy_dtype(dtype), num_col)
    schema = pyarrow.schema([("key", pyarrow.int64()), ("row", row_type)])
    with (
        files.replacing(Path(complete)) as file,
        pyarrow.parquet.ParquetWriter(file, schema) as writer,
    ):
        for keys, rows in parts:
            values = pyarrow.array(np.ascontiguousarray(rows).reshape(-1))
            columns = [keys, pyarrow.FixedSizeListArray.from_arrays(values, num_col)]
            writer.write_table(pyarrow.table(columns, schema))
