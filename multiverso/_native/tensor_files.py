"""Reads files of the safetensors format, which may come from anyone.

A header is read first, and nothing in it is believed: the tensors that it lists must fill the file
exactly, each byte once, as the format demands. So what a file contains is as large as the file.
"""

import json
import math
import struct
from typing import Any, Final, NamedTuple

from multiverso._native.files import OpenFile

LENGTH: Final = struct.Struct("<Q")
#: The bytes of an element, by the names of the dtypes in the format.
_ITEM_BYTES: Final = {
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 8),
}
#: The most bytes of memory that a byte of JSON takes, as in a list of empty lists.
_JSON_MEMORY: Final = 32
#: As many as an array of NumPy 1 can have.
_MOST_DIMENSIONS: Final = 32
#: What the use of a value from a file may raise, because anyone may have written the file.
BAD: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Entry(NamedTuple):
    """A tensor in a file: the name of its dtype, its shape, and its bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """What a file says of its content; `raw` is the file's beginning, up to the first tensor."""

    raw: bytes
    metadata: dict[str, Any]
    entries: dict[str, Entry]
    num_bytes: int  # of all tensors


def read_json(text: bytes, file: OpenFile) -> Any:
    """Return a value of a file in JSON; raise one of `BAD` if it is not valid."""
    file.require_memory(len(text) * _JSON_MEMORY)
    return json.loads(text.decode("utf-8"), object_pairs_hook=_without_repetitions)


def _without_repetitions(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("expected each name once in an object of JSON")
    return found


def read_header(file: OpenFile, most_bytes: int) -> Header:
    """Read the header of a file, of at most so many bytes; raise one of `BAD` if it is damaged."""
    if file.size < LENGTH.size:
        raise ValueError(f"expected a safetensors file, received {file.size} bytes")
    raw = file.take(LENGTH.size)
    (length,) = LENGTH.unpack(raw)
    first = LENGTH.size + length
    if length > most_bytes or first > file.size:
        raise ValueError(
            f"expected a header of at most {min(most_bytes, file.size - LENGTH.size)} bytes, "
            f"received one of {length} bytes"
        )
    text = bytes(file.take(length))
    listed = read_json(text, file)
    metadata = listed.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise TypeError(f"expected metadata by name, received {type(metadata).__name__}")
    entries = {name: _entry(value) for name, value in listed.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.begin != end:
            raise ValueError(f"expected {name[:100]!r} to begin at {end}, received {entry.begin}")
        end = entry.end
    if first + end != file.size:
        raise ValueError(f"expected a file of {first + end} bytes, received {file.size}")
    return Header(bytes(raw) + text, metadata, entries, end)


def _entry(value: Any) -> Entry:
    dtype = value["dtype"]
    if dtype not in _ITEM_BYTES:
        raise ValueError(f"expected a dtype of the safetensors format, received {dtype!r:.100}")
    if len(value["shape"]) > _MOST_DIMENSIONS:
        raise ValueError(f"expected at most {_MOST_DIMENSIONS} dimensions")
    shape = tuple(map(natural, value["shape"]))
    begin, end = map(natural, value["data_offsets"])
    size = math.prod(shape) * _ITEM_BYTES[dtype]
    if end - begin != size:
        raise ValueError(f"expected a tensor of {size} bytes, received {end - begin}")
    return Entry(dtype, shape, begin, end)


def natural(value: object) -> int:
    """Return an int of 0 or more from a file; raise ValueError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"expected an integer of 0 or more, received {value!r:.100}")
    return value
