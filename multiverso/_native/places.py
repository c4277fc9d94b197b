"""Names of places: the folders and files that users pass as paths or as addresses.

Every text that names a place goes through this module. A folder named ``s3:`` on this machine, or a
folder that is cut at ``#``, is never what the user meant, and is noticed only when its content is
needed. Paths become absolute, because the current directory may change before they are used.
"""

import os
import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from multiverso._native.arguments import text

#: A path as users pass it.
StrPath = str | os.PathLike[str]

#: The beginning of an address such as "s3://bucket/run", "simplecache::s3://bucket/run" of fsspec,
#: or "s3:/bucket/run", which pathlib makes of the first. The letter of a drive is no scheme.
_SCHEME: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)(::[a-z][a-z0-9+.-]+)*:/", re.IGNORECASE)


def path(place: Any, what: str) -> str:
    """Return the absolute path of a place on this machine: a path, or a file:// address."""
    given = _text(place, what)
    if is_address(given):
        raise ValueError(
            f"{what}: expected a path, received the address {given!r}; only the folders of "
            "save, load and checkpoints=, of publish(to=) and of follow may be addresses, so write "
            "to a folder of this machine and copy it, or mount the storage"
        )
    return given


def path_or_address(place: Any, what: str) -> str:
    """Return the absolute path of a place as `path` does, or an address that fsspec may open."""
    return _text(place, what)


def is_address(name: str) -> bool:
    """Return whether a result of `path_or_address` is an address."""
    return _SCHEME.match(name) is not None


def path_bytes(place: Any, what: str = "directory") -> bytes:
    """Return the absolute path of a place, as `path` does, for the library."""
    return os.fsencode(path(place, what))


def writable_folder(place: Any, what: str) -> str:
    """Return the path of a folder that will be written later; raise ValueError if it cannot be."""
    folder = existing = path(place, what)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    _require_writable(existing, f"{what}: expected a folder that can be written, received {folder}")
    return folder


def writable_file(place: Any, what: str) -> str:
    """Return the path of a file that will be written later; raise ValueError if it cannot be."""
    file = path(place, what)
    expected = f"{what}: expected a file that can be written, received {file}"
    _require_writable(os.path.dirname(file), expected)
    if os.path.isdir(file):
        raise ValueError(f"{expected}, which is a folder")
    return file


def _require_writable(folder: str, expected: str) -> None:
    if not os.path.isdir(folder):
        raise ValueError(f"{expected}: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{expected}: nothing can be written to {folder}")


def _text(place: Any, what: str) -> str:
    if not isinstance(place, str | os.PathLike):
        raise TypeError(f"{what}: expected a str or a path, received {place!r}")
    given = text(os.fspath(place), what)
    if given == "~" or given.startswith("~/"):
        raise ValueError(
            f"{what}: expected a path without '~', which only shells replace, received {given!r}; "
            "write os.path.expanduser(...)"
        )
    found = _SCHEME.match(given)
    if found is None and given.lower().startswith("file:"):
        raise ValueError(
            f"{what}: expected an address such as file:///folder, received {given!r}; for a file "
            "or folder of that name pass an absolute path"
        )
    if found is None:
        return os.path.abspath(given)
    if found["scheme"].lower() == "file" and found[2] is None:
        return os.path.abspath(_decoded(given, what))
    if not given.startswith("//", found.end() - 1):
        raise ValueError(
            f"{what}: expected a path or an address, received {given!r}, which has one slash where "
            "an address has two, as pathlib leaves it; pass an address as a str, and for a folder "
            "of that name an absolute path"
        )
    return given


def _decoded(address: str, what: str) -> str:
    """Return the path in a file:// address."""
    encoded = address[len("file:") :]
    if encoded.startswith("//"):
        host, slash, encoded = encoded[2:].partition("/")
        if host.lower() not in ("", "localhost") or not slash:
            msg = f"{what}: expected an address such as file:///folder, received {address!r}"
            raise ValueError(msg)
        encoded = "/" + encoded
    # "#" and "?" begin other parts in addresses of the web, but in names of files they are letters.
    decoded = os.fsdecode(unquote_to_bytes(os.fsencode(encoded)))
    return text(decoded, what).removeprefix("/" if os.name == "nt" else "")
