"""Converts checkpoints to files of the safetensors format, which other tools read, and back."""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from ctypes import byref, c_void_p, sizeof
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._extras import needs
from multiverso._native import arguments, capi, places
from multiverso._native.checkpoint_calls import save_options
from multiverso._native.dtypes import table_dtype
from multiverso._native.files import open_file
from multiverso._native.library import checked
from multiverso._native.places import StrPath
from multiverso._native.tensor_files import BAD, Entry, read_header
from multiverso.checkpoint._files import MAX_UNSTORED_BYTES, Checkpoint, SavedTable

#: The key in the file's metadata for updaters, options and the step, which are not tensors.
_METADATA_KEY: Final = "multiverso"
#: As many as the package safetensors reads.
_MOST_HEADER_BYTES: Final = 100_000_000
#: The dtypes of NumPy, by their names in the format; bfloat16 is one of another package.
_DTYPES: Final = {
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
    **{"BOOL": "?", "C64": "<c8"},
}


def export_safetensors(
    directory: StrPath, file: StrPath, *, max_bytes: int = MAX_UNSTORED_BYTES
) -> None:
    """Write the tables of a checkpoint to one file of the safetensors format.

    A table becomes a tensor of the same name, its updater's state ``NAME.state.0`` and so on, and
    its update counts by row ``NAME.steps``. The file's metadata contains updaters, options and
    step, but no clocks of workers. The export needs memory for the whole checkpoint.

    Parameters
    ----------
    directory : path
        A checkpoint, or a folder of checkpoints, from which the last one saved is used.
    file : path
        The file to write; an existing file is replaced.
    max_bytes : int, optional
        The most bytes that all tensors may have in addition to those of the checkpoint's files, as
        for `Checkpoint.read`.

    Raises
    ------
    ImportError
        If safetensors is not installed.
    ValueError, MemoryError
        If two tensors would have the same name, or all would be larger than `max_bytes` allows.
    CheckpointCorruptError, CheckpointIOError
        If the checkpoint cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, [1, 2], name="w")
    ...     mv.save(folder + "/saved")
    ...     mv.checkpoint.export_safetensors(folder + "/saved", folder + "/w.safetensors")
    ...     from safetensors.numpy import load_file
    ...     print(load_file(folder + "/w.safetensors")["w"])
    [1. 2.]

    """
    path = Path(places.path(file, "file"))
    places.path(directory, "directory")
    save_file = _safetensors().numpy.save_file
    tensors: dict[str, NDArray[Any]] = {}
    records = []
    with Checkpoint(directory) as checkpoint:
        checkpoint.require_room(sum(map(_size_of, checkpoint.tables)), max_bytes, "all tensors")
        for index, table in enumerate(checkpoint.tables):
            for name, array in _tensors_of(checkpoint, index, table, max_bytes):
                if name in tensors:
                    msg = f"expected tensors of different names, received two of {name!r}"
                    raise ValueError(msg)
                tensors[name] = array
            raw = checkpoint.records[index]
            records.append(
                {
                    "name": table.name,
                    "kind": raw.kind,
                    "updater": raw.updater,
                    "slots": table.slots,
                    "row_slots": table.row_slots,
                    "counting": table.counts,
                    "steps": table.steps,
                    "hyper": list(raw.hyper),
                }
            )
        metadata = {"step": checkpoint.step, "tables": records}
    # The file is replaced in one step, so that a concurrent reader finds a complete file. It is
    # written in a new folder: a link in the place of a file would lead the writer elsewhere.
    with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=path.parent) as folder:
        partial = Path(folder, path.name)
        save_file(tensors, partial, metadata={_METADATA_KEY: json.dumps(metadata)})
        partial.replace(path)


def _size_of(table: SavedTable) -> int:
    """Return the bytes of all tensors of a table."""
    of_row = table.dtype.itemsize + table.slots * table.state_dtype.itemsize
    of_row *= math.prod(table.shape[1:])
    of_row += table.row_slots * table.state_dtype.itemsize + 4 * (table.counts == 1)
    return table.shape[0] * of_row


def _tensors_of(
    checkpoint: Checkpoint, index: int, table: SavedTable, max_bytes: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    yield table.name, checkpoint.read(index, max_bytes=max_bytes)
    for slot in range(table.slots):
        yield f"{table.name}.state.{slot}", checkpoint.read(index, slot, max_bytes=max_bytes)
    steps = checkpoint.read_steps(index, max_bytes=max_bytes)
    if steps is not None:
        yield f"{table.name}.steps", steps
    row_state = checkpoint.read_row_state(index, max_bytes=max_bytes)
    if row_state is not None:
        yield f"{table.name}.row_state", row_state
    keys = checkpoint.read_keys(index)
    if keys is not None:
        yield f"{table.name}.keys", keys


def import_safetensors(
    file: StrPath, directory: StrPath, *, step: int | None = None, keep: int | None = None
) -> None:
    """Write the tensors of a file of the safetensors format as a checkpoint.

    A file from `export_safetensors` results in a checkpoint with the exported tables and step. From
    any other file, each tensor becomes a table of the same name with the updater "add": a matrix if
    the tensor has two dimensions, otherwise an array. One process calls this; it is not collective.

    Parameters
    ----------
    file : path
        A file with tensors of the dtypes that tables can have.
    directory : path
        The folder of checkpoints, as for `multiverso.save`.
    step, keep : int, optional
        As for `multiverso.save`; `step` defaults to the step in the file, if any.

    Raises
    ------
    TypeError, ValueError
        If a tensor has another dtype, the file is invalid, or its metadata does not match.
    MemoryError
        If there is not enough memory for the tensors, before they are read.
    OSError, CheckpointIOError
        If the file cannot be read, is no ordinary file, or the checkpoint cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from safetensors.numpy import save_file
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     save_file({"w": np.ones(2, np.float32)}, folder + "/w.safetensors")
    ...     mv.checkpoint.import_safetensors(folder + "/w.safetensors", folder + "/saved")
    ...     table = mv.ArrayTable(2, name="w")
    ...     step = mv.load(folder + "/saved")
    ...     print(table.get())
    [1. 1.]

    """
    path = Path(places.path(file, "file"))
    places.path(directory, "directory")
    with open_file(path) as opened:
        try:
            header = read_header(opened, _MOST_HEADER_BYTES)
        except BAD as error:
            raise ValueError(f"{path}: expected a safetensors file: {error}") from error
        opened.require_memory(header.num_bytes)
        content = opened.take(header.num_bytes)
    tensors = {name: _tensor(content, name, entry) for name, entry in header.entries.items()}
    encoded = header.metadata.get(_METADATA_KEY)
    records = [_record_of_tensor(name, tensors[name]) for name in sorted(tensors)]
    if encoded is not None:
        # The text may come from anyone, so it may contain values of any type, size and depth.
        try:
            metadata = json.loads(encoded)
            records = [_record_of_metadata(entry, tensors) for entry in metadata["tables"]]
            names = {raw.name for raw, _ in records}
            if len(names) < len(records):
                raise ValueError("two tables have the same name")
            if step is None:
                step = arguments.integer(metadata["step"], "step", 0)
        except BAD as error:
            msg = f"{path}: expected metadata that matches the tensors: {error!r}"
            raise ValueError(msg) from error
    options = save_options(directory, step, keep)
    tables = (capi.MV_CheckpointTable * len(records))(*(raw for raw, _ in records))
    arrays = [np.ascontiguousarray(array) for _, parts in records for array in parts]
    areas = (c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    checked.MV_CheckpointWrite(byref(options), tables, len(records), areas)


def _tensor(content: memoryview, name: str, entry: Entry) -> NDArray[Any]:
    dtype = entry.dtype
    if dtype == "BF16":
        found = table_dtype("bfloat16").stored
    elif dtype in _DTYPES:
        found = np.dtype(_DTYPES[dtype])
    else:
        raise TypeError(f"{name}: expected a dtype that tables can have, received {dtype}")
    count = math.prod(entry.shape)
    return np.frombuffer(content, found, count, entry.begin).reshape(entry.shape)


def _record_of_tensor(
    name: str, tensor: NDArray[Any]
) -> tuple[capi.MV_CheckpointTable, list[NDArray[Any]]]:
    raw = capi.MV_CheckpointTable(struct_size=sizeof(capi.MV_CheckpointTable))
    dtype = table_dtype(tensor.dtype.newbyteorder("="))
    raw.dtype = dtype.code
    is_matrix = tensor.ndim == 2
    raw.kind = capi.MV_TABLE_MATRIX if is_matrix else capi.MV_TABLE_ARRAY
    raw.num_row, raw.num_col = tensor.shape if is_matrix else (tensor.size, 1)
    raw.updater = capi.MV_UPDATER_ADD
    raw.name = arguments.name(name, "the name of a tensor").encode()
    return raw, [tensor.astype(dtype.stored, copy=False)]


def _record_of_metadata(
    entry: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]
) -> tuple[capi.MV_CheckpointTable, list[NDArray[Any]]]:
    name = entry["name"]
    if entry["kind"] == capi.MV_TABLE_HASH:
        msg = f"{name}: expected an array or a matrix, received a hash table, which add() can fill"
        raise ValueError(msg)
    raw, parts = _record_of_tensor(name, tensors[name])
    raw.slots = slots = arguments.integer(entry["slots"], "slots", 0, bits=31)
    raw.counting = arguments.integer(entry["counting"], "counting", 0, bits=2)
    state_dtype = table_dtype(parts[0].dtype).values
    for part_name in (f"{name}.state.{slot}" for slot in range(slots)):
        part = tensors[part_name]
        if part.shape != parts[0].shape or part.dtype != state_dtype:
            raise ValueError(f"{part_name}: expected the shape of {name} and {state_dtype}")
        parts.append(part)
    if raw.counting == 1:
        steps = tensors[f"{name}.steps"]
        if steps.shape != (raw.num_row,) or steps.dtype != np.int32:
            raise ValueError(f"{name}.steps: expected {raw.num_row} elements of int32")
        parts.append(steps)
    raw.row_slots = arguments.integer(entry.get("row_slots", 0), "row_slots", 0, bits=31)
    if raw.row_slots > 0:
        row_state = tensors[f"{name}.row_state"]
        if row_state.shape != (raw.num_row, raw.row_slots) or row_state.dtype != state_dtype:
            msg = f"{name}.row_state: expected {raw.num_row} x {raw.row_slots} of {state_dtype}"
            raise ValueError(msg)
        parts.append(row_state)
    if len(entry["hyper"]) > capi.MV_HYPER_COUNT:
        raise ValueError(f"{name}: expected at most {capi.MV_HYPER_COUNT} options")
    raw.kind = arguments.integer(entry["kind"], "kind", 0, bits=31)
    raw.updater = arguments.integer(entry["updater"], "updater", 0, bits=31)
    raw.steps = arguments.integer(entry["steps"], "steps", 0)
    for index, value in enumerate(entry["hyper"]):
        raw.hyper[index] = arguments.finite(value, "hyper")
    return raw, parts


def _safetensors() -> Any:
    with needs("the conversion of checkpoints to safetensors", safetensors="safetensors"):
        import safetensors
        import safetensors.numpy
    return safetensors
