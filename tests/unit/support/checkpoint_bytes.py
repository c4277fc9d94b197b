"""A second reader of checkpoints, in plain Python, that knows only docs/checkpoint-format.md.

Its assertions check the offsets and checksums that the page describes, and nothing else.
"""

import struct
from pathlib import Path

import numpy as np

BLOCK = 1 << 20  # bytes under one checksum
STEPS = 0x10000  # the area with the update counts of rows
ROW_IDS = 0x10001  # the area with the numbers of the stored rows
ROW_STATE = 0x10002  # the area with the updater's state of each row
KEYS = 0x10003  # the area with the keys of a hash table
RUNS, FREED_RUNS = 0x10004, 0x10005  # the areas with the rows that an increment replaces
DTYPES = ("<f4", "<f8", "<i4", "<i8")


def _crc_table():
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 * (number & 1))  # the polynomial of CRC-32C
        table.append(number)
    return table


_CRC = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def with_crc(data):
    """Return the data with its last 4 bytes replaced by the checksum of the others."""
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


def with_crc_from(data, begin):
    """Return the data with its last 4 bytes replaced by the checksum of those from `begin` on."""
    return bytes(data[:-4]) + struct.pack("<I", crc32c(data[begin:-4]))


def text_of(field):
    """Return the text of a field that is padded with zeros."""
    return field[: field.index(b"\0")].decode()


def read_manifest(data):
    assert data[:8] == b"\x89MVM\r\n\x1a\n"
    version, num_tables, size, ident, number, step = struct.unpack_from("<IIqQqq", data, 8)
    num_files, mode, workers, zero, created = struct.unpack_from("<IIIIq", data, 48)
    assert (zero, size) == (0, len(data))
    assert data == with_crc(data)
    table_bytes, file_bytes = {1: (232, 16), 2: (264, 16)}.get(version, (264, 32))
    tables = 96
    descriptions = []
    for i in range(num_tables):
        at = tables + table_bytes * i
        kind, dtype, updater, slots, rows, columns, counting, row_slots = struct.unpack_from(
            "<IIIIqqII", data, at
        )
        descriptions.append(
            {
                **{"kind": kind, "dtype": DTYPES[dtype], "updater": updater, "slots": slots},
                **{"rows": rows, "columns": columns, "counting": counting},
                "row_slots": row_slots,
                "name": text_of(data[at + 40 : at + 104]),
                "options": struct.unpack_from("<16d", data, at + 104),
                "clocks": struct.unpack_from(
                    f"<{workers}Q", data, tables + table_bytes * num_tables + 8 * workers * i
                ),
                "initializer": struct.unpack_from("<IIQdd", data, at + 232)
                if version > 1
                else None,
            }
        )
    assert version != 2 or any(table["initializer"][0] for table in descriptions)
    at = tables + (table_bytes + 8 * workers) * num_tables
    assert size == at + file_bytes * num_files + 4
    files = []
    for i in range(num_files):
        size, header_crc, index = struct.unpack_from("<qII", data, at + file_bytes * i)
        origin = (ident, number)
        if version in (4, 5):
            origin = struct.unpack_from("<Qq", data, at + file_bytes * i + 16)
        else:
            assert index == 0
            index = i
        name = f"shard-{index:05}.mv"
        if origin[1] != number:
            name = f"shard-{index:05}-of-{origin[1]:06}.mv"
        files.append({"size": size, "header_crc": header_crc, "index": index, "name": name})
        files[-1].update(id=origin[0], number=origin[1])
    return {
        **{"version": version, "id": ident, "number": number, "step": step, "mode": mode},
        **{"workers": workers, "created": created},
        "library": text_of(data[72:96]),
        "tables": descriptions,
        "files": files,
    }


def read(folder):
    """Return the manifest, with the update count of each table as "steps", and the arrays.

    The arrays are in a dict by (table, area). Rows that are not stored are zeros. Where files of
    several checkpoints have a row, that of the newest counts.
    """
    manifest = read_manifest(Path(folder, "manifest.mv").read_bytes())
    arrays, parts = {}, {}
    written_by = None
    for file in reversed(manifest["files"]):
        if file["number"] != written_by:
            _apply(manifest, arrays, parts)
            written_by, parts = file["number"], {}
        size, header_crc = file["size"], file["header_crc"]
        data = Path(folder, file["name"]).read_bytes()
        assert data[:8] == b"\x89MVD\r\n\x1a\n"
        version, num_sections, file_size, ident, index, block = struct.unpack_from(
            "<IIqQII", data, 8
        )
        header, checksums_at, num_checksums = struct.unpack_from("<qqq", data, 40)
        is_any_lazy = any((table["initializer"] or [0])[0] for table in manifest["tables"])
        assert version in (5, 2 if is_any_lazy else 1)
        alignment = 64 if version == 5 else 4096
        assert (ident, index, block) == (file["id"], file["index"], BLOCK)
        assert file_size == size == len(data) == checksums_at + 4 * num_checksums + 4
        assert header % alignment == 0
        assert data[:header] == with_crc(data[:header])
        assert struct.unpack_from("<I", data, header - 4) == (header_crc,)
        crcs = struct.unpack_from(f"<{num_checksums}I", data, checksums_at)
        assert struct.unpack("<I", data[-4:]) == (crc32c(data[checksums_at:-4]),)
        at, block_number = header, 0
        for section in range(num_sections):
            table, area, first, rows, offset, length, first_block, steps = struct.unpack_from(
                "<IIqqqqqQ", data, 64 + 56 * section
            )
            assert (offset, first_block) == (at, block_number)
            description = manifest["tables"][table]
            is_lazy = bool(description["initializer"] and description["initializer"][0])
            is_list = area in (ROW_IDS, RUNS, FREED_RUNS)
            columns = {STEPS: 1, KEYS: 2, ROW_STATE: description["row_slots"]}.get(
                area, 1 if is_list else description["columns"]
            )
            kind = "<i8" if is_list else description["dtype"]
            dtype = np.dtype({STEPS: "<u4", KEYS: "<i8"}.get(area, kind))
            stored = length // (columns * dtype.itemsize) if is_lazy or version == 5 else rows
            assert length == stored * columns * dtype.itemsize
            assert stored <= rows
            end = at + -(-length // alignment) * alignment
            assert not any(data[at + length : end])
            for begin in range(at, end, BLOCK):
                assert crc32c(data[begin : min(begin + BLOCK, end)]) == crcs[block_number]
                block_number += 1
            values = np.frombuffer(data, dtype, stored * columns, at).reshape(stored, columns)
            parts.setdefault((table, area), []).append((first, rows, values))
            description["steps"] = max(description.get("steps", 0), steps)
            at = end
        assert (at, block_number) == (checksums_at, num_checksums)
    _apply(manifest, arrays, parts)
    return manifest, arrays


def _apply(manifest, arrays, parts):
    """Put the rows that one checkpoint wrote into the arrays."""
    for (table, area), sections in parts.items():
        num_rows = manifest["tables"][table]["rows"]
        values = np.zeros((num_rows, sections[0][2].shape[1]), sections[0][2].dtype)
        values = arrays.get((table, area), values)
        ids_of = {ids[:2]: ids[2].ravel() for ids in parts.get((table, ROW_IDS), [])}
        runs_of = {runs[:2]: _rows(runs) for runs in parts.get((table, RUNS), [])}
        freed_of = {runs[:2]: _rows(runs) for runs in parts.get((table, FREED_RUNS), [])}
        if area in (ROW_IDS, RUNS, FREED_RUNS):
            continue
        for first, rows, stored in sections:
            ids = np.arange(first, first + rows)
            has_runs = (first, rows) in runs_of and not (area == KEYS and (first, rows) in ids_of)
            values[freed_of.get((first, rows), []) if has_runs else ids] = 0
            if ids_of or has_runs:
                ids = runs_of[first, rows] if has_runs else ids_of[first, rows]
                assert (np.diff(ids) > 0).all()
                assert ((first <= ids) & (ids < first + rows)).all()
            values[ids] = stored
        arrays[table, area] = values


def _rows(section):
    """Return the rows of which a section has the runs."""
    first, _, runs = section
    parts = [np.arange(run % 65536 + 1) + first + run // 65536 for run in runs.ravel().tolist()]
    return np.concatenate([np.empty(0, np.int64), *parts])
