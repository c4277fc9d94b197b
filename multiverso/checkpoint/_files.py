"""Finds checkpoints in a folder; verifies and reads one."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from ctypes import byref, c_int64, sizeof
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native import capi, checkpoint_calls
from multiverso._native.arguments import integer
from multiverso._native.checkpoint_calls import BYTES_PER_CALL, name_intact
from multiverso._native.dtypes import TableDtype, table_dtype
from multiverso._native.hints import Hint
from multiverso._native.library import checked, lib
from multiverso._native.places import StrPath, path_bytes
from multiverso.errors import CheckpointCorruptError, CheckpointIOError
from multiverso.tables._updaters import UPDATERS

_MODES: Final = {capi.MV_MODE_ASYNC: "async", capi.MV_MODE_SYNC: "sync"}
_UPDATER_NAMES: Final = {code: name for name, (code, _) in UPDATERS.items()}

#: The most bytes of rows that no file contains, since a small file can describe a huge table.
MAX_UNSTORED_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class SavedTable:
    """The description of one table in a checkpoint.

    Attributes
    ----------
    name : str
    shape : tuple of int
        (size,), (num_row, num_col), or of a hash table, (number of keys, num_col).
    is_hash_table : bool
    dtype : numpy.dtype
    updater : str
        The name of the updater; ``"updater 17"`` if this version does not know it.
    options : dict of str to float
        The options of the updater.
    slots : int
        The number of arrays of the table's size in the updater's state.
    row_slots : int
        The number of values of the updater's state for each row, beside those arrays.
    counts : int
        The way to count updates: 0 not at all, 1 per row, 2 for the whole table.
    steps : int
        The number of updates of the table, if `counts` is 2.
    clocks : tuple of int
        The number of adds of each worker; counted in sync mode and with bounded staleness.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.MatrixTable(2, 3, name="w", updater="adam")
    ...     mv.save(folder)
    ...     checkpoint = mv.checkpoint.Checkpoint(folder)
    ...     saved, steps = checkpoint.tables[0], checkpoint.read_steps("w")
    ...     checkpoint.close()
    >>> saved.name, saved.shape, saved.updater
    ('w', (2, 3), 'adam')

    """

    name: str
    shape: tuple[int, ...]
    is_hash_table: bool
    dtype: np.dtype[Any]
    updater: str
    options: Mapping[str, float]
    slots: int
    row_slots: int
    counts: int
    steps: int
    clocks: tuple[int, ...]

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """The dtype of the updater's state: float32 if the parameters have 16 bits."""
        return table_dtype(self.dtype).values


class Checkpoint:
    """A checkpoint that is open for reading, by one thread at a time. It is a context manager.

    Parameters
    ----------
    directory : path
        A checkpoint, or a folder of checkpoints, from which the last one saved is opened.

    Raises
    ------
    CheckpointIOError
        If there is no checkpoint, or the checkpoint cannot be read.
    CheckpointCorruptError
        If anything but the data is damaged. `verify` and `read` check the data.

    Attributes
    ----------
    path : Path
        The path of the checkpoint itself.
    step, number : int
        The step that was passed to `multiverso.save`, and the number in the order of saving.
    created : datetime.datetime
        The time of saving, in UTC.
    mode : str
        The mode of the session: "async", "sync" or "stale".
    library : str
        The version of Multiverso that wrote the checkpoint.
    num_files, num_bytes : int
        The number of data files, and the number of bytes of all files. An incremental checkpoint
        shares some of them with earlier checkpoints of its folder.
    tables : tuple of SavedTable
        The descriptions of the tables.
    records : list of MV_CheckpointTable
        The descriptions of the tables as structs of the C API.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.HashTable(2, 100, 1, updater="rowwise_adagrad", name="w")
    ...     table.add([[0, 0]], [77])
    ...     mv.save(folder, step=7)
    ...     with mv.checkpoint.Checkpoint(folder) as checkpoint:
    ...         checkpoint.verify()
    ...         state = checkpoint.read_row_state("w")
    ...         print(checkpoint.step, checkpoint.read_keys("w"), checkpoint.read("w"))
    7 [77] [[1. 1.]]

    """

    if not TYPE_CHECKING:  # A type checker finds that it does not exist.
        bases = Hint("each folder is a complete checkpoint")

    def __init__(self, directory: StrPath) -> None:
        self._handle = capi.MV_Checkpoint()
        checked.MV_CheckpointOpen(path_bytes(directory), byref(self._handle))
        try:
            self._set_attributes()
        except BaseException:
            self.close()
            raise

    def _set_attributes(self) -> None:
        size = sizeof(capi.MV_CheckpointDescription)
        raw = capi.MV_CheckpointDescription(struct_size=size)
        checked.MV_CheckpointDescribe(self._handle, byref(raw))
        self.path = Path(os.fsdecode(raw.path))
        self.step: int = raw.step
        self.number: int = raw.number
        # A file can contain any number. Dates end with the year 9999; 2**37 is in the year 6325.
        self.created = datetime.fromtimestamp(min(max(raw.created, 0), 2**37), timezone.utc)
        self.mode = _MODES.get(raw.mode, "stale")
        self.library = raw.library.decode(errors="replace")
        self.num_files: int = raw.num_files
        self.num_bytes: int = raw.bytes
        self.records = [self._record(i) for i in range(raw.num_tables)]
        self.tables = tuple(self._saved_table(i, raw.num_workers) for i in range(raw.num_tables))

    def _record(self, index: int) -> capi.MV_CheckpointTable:
        raw = capi.MV_CheckpointTable(struct_size=sizeof(capi.MV_CheckpointTable))
        checked.MV_CheckpointDescribeTable(self._handle, index, byref(raw))
        return raw

    def _saved_table(self, index: int, num_workers: int) -> SavedTable:
        raw = self.records[index]
        clocks = (c_int64 * num_workers)()
        checked.MV_CheckpointClocks(self._handle, index, clocks, num_workers)
        updater = _UPDATER_NAMES.get(raw.updater, f"updater {raw.updater}")
        options = UPDATERS[updater][1] if updater in UPDATERS else {}
        is_array = raw.kind == capi.MV_TABLE_ARRAY
        return SavedTable(
            name=raw.name.decode(errors="replace"),
            shape=(raw.num_row,) if is_array else (raw.num_row, raw.num_col),
            is_hash_table=raw.kind == capi.MV_TABLE_HASH,
            dtype=TableDtype.of_code(raw.dtype).stored,
            updater=updater,
            options={name: raw.hyper[index] for name, index in options.items()},
            slots=raw.slots,
            row_slots=raw.row_slots,
            counts=raw.counting,
            steps=raw.steps,
            clocks=tuple(clocks),
        )

    def verify(self) -> None:
        """Read all files and compare their checksums.

        Raises
        ------
        CheckpointCorruptError, CheckpointIOError
            If a file has changed since the save, or cannot be read. The error has the path and the
            position.

        """
        remaining = c_int64(1)
        while remaining.value:
            checked.MV_CheckpointVerify(self._handle, BYTES_PER_CALL, byref(remaining))

    def read(
        self,
        table: str | int,
        slot: int | None = None,
        *,
        max_bytes: int = MAX_UNSTORED_BYTES,
    ) -> NDArray[Any]:
        """Return the parameters of a table, or an array of its updater's state.

        Parameters
        ----------
        table : str or int
            The name of the table, or its index in `tables`.
        slot : int, optional
            The index of the array of the updater's state; by default the parameters are read.
        max_bytes : int, optional
            The most bytes that the result may have in addition to those of the checkpoint's files.
            Of a table with an initializer, a small file can describe more rows than there is
            memory for.

        Returns
        -------
        numpy.ndarray
            A new array with the shape of the table, and its dtype or `SavedTable.state_dtype`. The
            rows of a hash table are in the order of `read_keys`.

        Raises
        ------
        KeyError, IndexError
            If there is no such table or slot.
        MemoryError
            If the result would be larger than `max_bytes` allows.
        CheckpointCorruptError, CheckpointIOError
            As for `verify`, about the data that is read.

        """
        index = self._index(table)
        saved = self.tables[index]
        if slot is not None and not 0 <= integer(slot, "slot", -(2**63)) < saved.slots:
            raise IndexError(
                f"slot: expected one of the {saved.slots} of table {saved.name!r}, received {slot}"
            )
        dtype = saved.dtype if slot is None else saved.state_dtype
        return self._read(index, 0 if slot is None else 1 + slot, saved.shape, dtype, max_bytes)

    def read_keys(self, table: str | int) -> NDArray[np.int64] | None:
        """Return the keys of a hash table, shape (number of keys,); None for other tables."""
        index = self._index(table)
        if not self.tables[index].is_hash_table:
            return None
        cells = self._read(
            index, capi.MV_AREA_KEYS, (self.tables[index].shape[0], 2), np.dtype(np.int64)
        )
        return np.ascontiguousarray(cells[:, 0])

    def read_steps(
        self, table: str | int, *, max_bytes: int = MAX_UNSTORED_BYTES
    ) -> NDArray[np.int32] | None:
        """Return the updates of each row, shape (num_row,); None if they are not counted by row.

        `max_bytes` is that of `read`.
        """
        index = self._index(table)
        if self.tables[index].counts != 1:
            return None
        shape = self.tables[index].shape[:1]
        return self._read(index, capi.MV_AREA_STEPS, shape, np.dtype(np.int32), max_bytes)

    def read_row_state(
        self, table: str | int, *, max_bytes: int = MAX_UNSTORED_BYTES
    ) -> NDArray[Any] | None:
        """Return the state of each row, shape (num_row, row_slots); None if rows have none.

        `max_bytes` is that of `read`.
        """
        index = self._index(table)
        saved = self.tables[index]
        if saved.row_slots == 0:
            return None
        shape = (saved.shape[0], saved.row_slots)
        return self._read(index, capi.MV_AREA_ROW_STATE, shape, saved.state_dtype, max_bytes)

    def _read(
        self,
        index: int,
        area: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        max_bytes: int = MAX_UNSTORED_BYTES,
    ) -> NDArray[Any]:
        name = f"table {self.tables[index].name!r}"
        self.require_room(math.prod(shape) * dtype.itemsize, max_bytes, name)
        out = np.empty(shape, dtype)
        checked.MV_CheckpointRead(self._handle, index, area, out.ctypes.data, out.nbytes)
        return out

    def require_room(self, size: int, max_bytes: int, what: str) -> None:
        """Raise MemoryError if bytes are not free, or `max_bytes` more than those of the files."""
        if size > self.num_bytes + integer(max_bytes, "max_bytes", 0):
            raise MemoryError(
                f"{what}: expected at most {max_bytes} bytes in addition to the {self.num_bytes} "
                f"bytes of the checkpoint's files, received {size} bytes, most of which an "
                "initializer gives; pass a larger max_bytes= if you trust the checkpoint and have "
                "the memory"
            )
        checked.MV_CheckIsFree(size, what.encode(errors="replace"))

    def _index(self, table: str | int) -> int:
        if isinstance(table, str):
            names = [saved.name for saved in self.tables]
            if table not in names:
                raise KeyError(table)
            return names.index(table)
        if not 0 <= integer(table, "table", -(2**63)) < len(self.tables):
            raise IndexError(f"table: expected 0 to {len(self.tables) - 1}, received {table}")
        return table

    def close(self) -> None:
        """Close the files. Arrays that have been read stay valid."""
        lib.MV_CheckpointClose(self._handle)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<multiverso.checkpoint.Checkpoint {str(self.path)!r} step={self.step}>"


def verify(directory: StrPath) -> None:
    """Verify a checkpoint, or the last one in a folder; see `Checkpoint.verify`.

    The error about a damaged one names the newest other checkpoint of the folder that is intact.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, name="w")
    ...     mv.save(folder)
    ...     mv.checkpoint.verify(folder)

    """
    try:
        with Checkpoint(directory) as checkpoint:
            checkpoint.verify()
    except (CheckpointCorruptError, CheckpointIOError) as error:
        name_intact(error, directory)
        raise


def saved_in(directory: StrPath) -> list[Any]:
    """Return the checkpoints in a folder, in the order of saving; none if the folder is missing.

    Each is a `Path`; if the folder is an address, a str.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, name="w")
    ...     mv.save(folder, step=10)
    ...     mv.save(folder, step=20)
    ...     [path.name for path in mv.checkpoint.saved_in(folder)]
    ['000001-step-10', '000002-step-20']

    """
    return checkpoint_calls.saved_in(directory)


def latest(directory: StrPath) -> Any:
    """Return the checkpoint that was saved last in a folder, or None.

    Only the names in the folder are read; loading the checkpoint verifies its contents. If the
    folder is an address, so is the result.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(mv.checkpoint.latest(folder))
    None

    """
    found = saved_in(directory)
    return found[-1] if found else None
