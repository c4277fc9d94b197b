"""Reads the files of a publication, and checks them before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from threading import RLock
from typing import Any

from multiverso._native.tensor_files import BAD
from multiverso.publishing import _format
from multiverso.publishing._folder import Folder
from multiverso.publishing._tables import table_of


def read(folder: Folder, entry: Mapping[str, Any], *, is_full: bool) -> list[_format.File]:
    """Return the files of a publication, in the order of the nodes.

    Raises FileNotFoundError if one is missing, perhaps because it has expired; PublicationError if
    one is not as it was written, or belongs to another publication; and MemoryError before it reads
    a file for which there is not enough memory.
    """
    files = []
    for node, name in enumerate(entry["files"]):
        expected = {
            "format": _format.FORMAT,
            "version": entry["version"],
            "step": entry["step"],
            "base": 0 if is_full else entry["version"] - 1,
            "node": node,
            "nodes": len(entry["files"]),
        }
        where = f"{folder.name}/{name}"
        try:
            with folder.open(name) as file:
                files.append(_format.decode(file, expected))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _format.damaged(where, error.strerror or error) from error
        except BAD as error:
            raise _format.damaged(where, error) from error
    return files


def prepare(
    present: Mapping[str, Any],
    files: list[_format.File],
    lock: RLock,
    default: float | None,
    where: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables after a publication, and what to apply to each; check everything.

    `present` are the tables before it, and new ones get `lock` and `default`. Raises
    PublicationError, which names the file `where`, if its files do not fit each other or the
    tables.
    """
    try:
        by_name = [{record["name"]: record for record in f.metadata["tables"]} for f in files]
        if any(records.keys() != by_name[0].keys() for records in by_name):
            raise ValueError("expected the same tables in the files of all nodes")
        tables, changes = {}, {}
        for key, record in by_name[0].items():
            new = table_of(key, record, files[0].tensors, lock, default)
            table = present.get(key)
            if table is None or table._identity() != new._identity():
                table = new
            parts = [
                (records[key], file.tensors) for records, file in zip(by_name, files, strict=True)
            ]
            changes[key] = table._take(parts)
            tables[key] = table
    except BAD as error:
        raise _format.damaged(where, error) from error
    return tables, changes
