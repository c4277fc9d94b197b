"""The file `latest.json`, which names the publications in a folder from the last full one on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

from multiverso._native.tensor_files import BAD, natural, read_json
from multiverso.publishing._folder import Folder
from multiverso.publishing._format import FORMAT, NAME, damaged

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
