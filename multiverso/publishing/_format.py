"""The files of a publication, in the safetensors format, and `latest.json`, which names them.

docs/publication-format.md describes the tensors. The last one, `checksum`, is the CRC-32 of all
bytes of the file before it, so a file that was damaged, cut or exchanged in part is never used.
"""

import json
import math
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiverso._native.files import OpenFile
from multiverso._native.tensor_files import BAD, LENGTH, Entry, natural, read_header, read_json
from multiverso.errors import PublicationError, StateError
from multiverso.publishing._folder import Folder
from multiverso.readers._memory import BLOCK

#: The number of this format, in the metadata and in `latest.json`.
FORMAT: Final = 1
#: The key of the metadata, a JSON object, in the header of a file.
METADATA: Final = "multiverso-publication"
CHECKSUM: Final = "checksum"
#: The names of the files of publications.
NAME: Final = re.compile(r"\d{8,}-[0-9a-f]{16}(-full)?(-\d+of\d+)?\.safetensors")
#: NumPy's dtype of the bytes of a tensor, by its name in the safetensors format. NumPy has no
#: bfloat16, whose bits are kept as uint16.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
}
_CHECKSUM_BYTES: Final = 4
#: A longer header is a damaged or a hostile one. `encode` writes none.
MOST_HEADER_BYTES: Final = 4 << 20


class Tensor(NamedTuple):
    """An array, with the name of its dtype in the format."""

    dtype: str
    array: NDArray[Any]


class File(NamedTuple):
    """The content of a file: metadata, and the arrays by name, which share its memory."""

    metadata: dict[str, Any]
    tensors: dict[str, NDArray[Any]]


def encode(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[Any]:
    """Return the parts of a file, one after the other; arrays are not copied."""
    header: dict[str, Any] = {"__metadata__": {METADATA: json.dumps(metadata)}}
    end = 0
    # Larger elements come first, so that each array begins at a multiple of its elements' size.
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].array.itemsize))
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.array.nbytes
        shape = list(tensor.array.shape)
        header[name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [begin, end]}
    offsets = [end, end + _CHECKSUM_BYTES]
    header[CHECKSUM] = {"dtype": "U32", "shape": [1], "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # The tensors begin at a multiple of eight bytes.
    if len(text) > MOST_HEADER_BYTES:
        raise StateError(
            f"publish(to=): expected tables whose names and shapes take at most "
            f"{MOST_HEADER_BYTES} bytes in a file, received {len(text)}; use fewer tables"
        )
    parts: list[Any] = [LENGTH.pack(len(text)), text]
    arrays = (np.ascontiguousarray(tensor.array) for tensor in tensors.values())
    parts += [array.reshape(-1).view(np.uint8).data for array in arrays if array.size]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [*parts, struct.pack("<I", checksum)]


def decode(file: OpenFile, expected: Mapping[str, Any]) -> File:
    """Read a file whose metadata contain `expected`; raise one of `BAD` if it is damaged."""
    header = read_header(file, MOST_HEADER_BYTES)
    metadata = read_json(header.metadata[METADATA].encode(), file)
    received = {key: metadata.get(key) for key in expected}
    if received != expected:
        raise ValueError(f"expected the metadata {expected}, received {received!r:.500}")
    end = header.num_bytes - _CHECKSUM_BYTES
    if header.entries.get(CHECKSUM) != ("U32", (1,), end, header.num_bytes):
        raise ValueError("expected a checksum at the end")
    working = (_working_bytes(name, entry) for name, entry in header.entries.items())
    file.require_memory(header.num_bytes + sum(working))
    content = file.take(header.num_bytes)
    (checksum,) = struct.unpack("<I", content[end:])
    if zlib.crc32(content[:end], zlib.crc32(header.raw)) != checksum:
        raise ValueError("its bytes do not have the checksum at its end")
    return File(metadata, {key: _tensor(content, entry) for key, entry in header.entries.items()})


def _tensor(content: memoryview, entry: Entry) -> NDArray[Any]:
    dtype = DTYPES[entry.dtype]
    count = math.prod(entry.shape)
    return np.frombuffer(content, dtype, count, entry.begin).reshape(entry.shape)


def _working_bytes(name: str, entry: Entry) -> int:
    """Return the most bytes of memory that applying a tensor takes beside its own."""
    size = entry.end - entry.begin
    match name.partition(":")[0]:
        case "places":  # The numbers of elements, of eight bytes each, some times.
            return 20 * size
        case "keys" | "removed":  # Sorted and compared with those of the table.
            return 8 * size
        case "rows":  # Those of all nodes together, and the rows before and after.
            return 3 * size
    return 0


def result_of(stored: str, bits: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of stored values as floats of 32 bits or more, or as integers."""
    if stored == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32) if stored == "F16" else bits.copy()


def damaged(path: str, reason: object) -> PublicationError:
    """Return the error about a file that cannot be used."""
    if isinstance(reason, LookupError):
        reason = f"expected {reason}, which is missing"
    error = PublicationError(f"{path}: {reason}")
    error.path = path
    return error


def element_numbers(counts: NDArray[Any], places: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Return the numbers of elements from their blocks and their places in them."""
    blocks = -(-size // BLOCK)
    if counts.dtype != np.uint32 or places.dtype != np.uint16 or counts.shape != (blocks,):
        raise ValueError(f"expected the counts of {blocks} blocks, received {counts.shape}")
    if places.shape != (int(counts.sum(dtype=np.int64)),):
        raise ValueError(f"expected {counts.sum(dtype=np.int64)} places, received {places.shape}")
    numbers: NDArray[np.int64] = np.repeat(np.arange(blocks) * BLOCK, counts) + places
    if len(numbers) and (numbers[-1] >= size or (np.diff(numbers) <= 0).any()):
        raise ValueError("expected places in ascending order, in the table")
    return numbers


def ids_of(tensor: NDArray[Any], count: int | None) -> NDArray[np.int64]:
    """Return a tensor of keys, or of ids of `count` rows; raise ValueError for another one."""
    if tensor.dtype != np.int64 or tensor.ndim != 1:
        raise ValueError(f"expected keys, received {tensor.dtype} of {tensor.shape}")
    if count is not None and ((tensor < 0) | (tensor >= count)).any():
        raise ValueError(f"expected ids of {count} rows, received others")
    return tensor


#: The file that names the publications in a folder from the last full one on.
LATEST: Final = "latest.json"
#: A longer file is a damaged or a hostile one: a writer makes a full publication before that.
MOST_BYTES: Final = 1 << 20


def read_latest(folder: Folder) -> list[dict[str, Any]]:
    """Return the publications in `latest.json`, which are none if nothing has been published."""
    where = f"{folder.name}/{LATEST}"
    try:
        with folder.open(LATEST) as file:
            if file.size > MOST_BYTES:
                raise ValueError(f"expected at most {MOST_BYTES} bytes, received {file.size}")
            checksum, _, text = bytes(file.take(file.size)).partition(b"\n")
            text = text.partition(b"\n")[0]
            if checksum != b"%08x" % zlib.crc32(text):
                raise ValueError("its second line does not have the checksum in its first")
            latest = read_json(text, file)
            if latest["format"] != FORMAT:
                raise ValueError(
                    f"expected the format {FORMAT}, received {latest['format']!r:.100}"
                )
            return _checked(latest["publications"])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise damaged(where, error.strerror or error) from error
    except BAD as error:
        raise damaged(where, error) from error


def dump_latest(latest: Mapping[str, Any]) -> bytes:
    """Return the content of `latest.json`, whose first line is the checksum of the second."""
    text = json.dumps(latest).encode()
    return b"%08x\n%b\n" % (zlib.crc32(text), text)


def _checked(chain: Any) -> list[dict[str, Any]]:
    """Return publications; raise one of `BAD` if they are not a chain in the folder itself."""
    for entry in chain:
        names = entry["files"]
        checked = [name for name in names if isinstance(name, str) and NAME.fullmatch(name)]
        if not checked or checked != names:
            raise ValueError(f"expected names of files, received {names!r:.100}")
        natural(entry["step"])
    versions = [natural(entry["version"]) for entry in chain]
    if not versions or versions != [*range(versions[0], versions[0] + len(versions))]:
        raise ValueError(f"expected successive versions, received {versions!r:.100}")
    return [*chain]
