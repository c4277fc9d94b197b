"""The file `latest.json`, which names the publications in a folder from the last full one on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from multiverso.publishing._folder import Folder
from multiverso.publishing._format import BAD, FORMAT, NAME, damaged, natural

LATEST: Final = "latest.json"
#: A longer file is a damaged or a hostile one.
_MOST_BYTES: Final = 16 << 20


def read_latest(folder: Folder) -> dict[str, Any] | None:
    """Return the content of `latest.json`, or None if nothing has been published.

    Raises
    ------
    PublicationError
        If the file is not as it was written, or cannot be read.

    """
    where = f"{folder.name}/{LATEST}"
    try:
        content = folder.read(LATEST, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise damaged(where, str(error)) from error
    return _load(bytes(content), where)


def dump_latest(latest: Mapping[str, Any]) -> bytes:
    """Return the content of `latest.json`, whose first line is the checksum of the second."""
    text = json.dumps(latest).encode()
    return b"%08x\n%b\n" % (zlib.crc32(text), text)


def _load(content: bytes, where: str) -> dict[str, Any]:
    """Check the content of `latest.json`, and return it.

    Raises
    ------
    PublicationError
        If the file is not as it was written.

    """
    try:
        checksum, text = content.split(b"\n")[:2]
        if int(checksum, 16) != zlib.crc32(text):
            raise ValueError("its second line does not have the checksum in its first")
        latest = json.loads(text)
        if latest["format"] != FORMAT:
            raise ValueError(f"expected the format {FORMAT}, received {latest['format']!r:.100}")
        chain = latest["publications"]
        for entry in chain:
            _check(entry)
        versions = [natural(entry["version"]) for entry in chain]
        if not versions or versions != [*range(versions[0], versions[0] + len(versions))]:
            raise ValueError(f"expected successive versions, received {versions!r:.100}")
    except BAD as error:
        raise damaged(where, error) from error
    return dict(latest)


def _check(entry: Mapping[str, Any]) -> None:
    """Raise ValueError unless the files of a publication lie in the folder itself."""
    names: Iterable[Any] = entry["files"]
    checked = [name for name in names if isinstance(name, str) and NAME.fullmatch(name)]
    if not checked or checked != names:
        raise ValueError(f"expected names of files, received {names!r:.100}")
    natural(entry["step"])
