"""Reads what the library describes in JSON: sessions, their ranks and their tables."""

import ctypes
import json
from collections.abc import Callable, Iterable
from typing import Any, Final

#: The bytes of the first buffer for a description; a longer one is read into a larger buffer.
_FIRST_BUFFER_BYTES: Final = 1 << 16


def by_name(tables: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return descriptions of tables by name; a later table of a name is "NAME (table ID)"."""
    found: dict[str, dict[str, Any]] = {}
    for table in tables:
        name = table["name"]
        found[f"{name} (table {table['id']})" if name in found else name] = table
    return found


def read_description(function: Callable[..., Any], source: object) -> Any:
    """Return the dict or list that `function` of the library writes about `source`."""
    length = ctypes.c_int64(_FIRST_BUFFER_BYTES)
    while True:
        capacity = length.value
        buffer = ctypes.create_string_buffer(capacity)
        function(source, buffer, capacity, ctypes.byref(length))
        if length.value <= capacity:
            return json.loads(buffer.raw[: length.value])
