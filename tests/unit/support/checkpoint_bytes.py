"""A reader of checkpoints in plain Python, written only from docs/checkpoint-format.md.

Assertions check the offsets and checksums that the page describes, and nothing else.
"""

import struct
from pathlib import Path

import numpy as np

BLOCK = 1 << 20
STEPS = 0x10000
DTYPES = ("<f4", "<f8", "<i4", "<i8")


def _crc_table():
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 * (number & 1))
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


def text(field):
    return field[: field.index(b"\0")].decode()


def read_manifest(data):
    assert data[:8] == b"\x89MVM\r\n\x1a\n"
    version, tables, size, ident, number, step = struct.unpack_from("<IIqQqq", data, 8)
    files, mode, workers, zero, created = struct.unpack_from("<IIIIq", data, 48)
    assert (version, zero, size) == (1, 0, len(data))
    assert data == with_crc(data)
    found = []
    for i in range(tables):
        at = 96 + 232 * i
        kind, dtype, updater, slots, rows, columns, counting, zero = struct.unpack_from(
            "<IIIIqqII", data, at
        )
        found.append(
            {
                **{"kind": kind, "dtype": DTYPES[dtype], "updater": updater, "slots": slots},
                **{"rows": rows, "columns": columns, "counting": counting},
                "name": text(data[at + 40 : at + 104]),
                "options": struct.unpack_from("<16d", data, at + 104),
                "clocks": struct.unpack_from(
                    f"<{workers}Q", data, 96 + 232 * tables + 8 * workers * i
                ),
            }
        )
    at = 96 + (232 + 8 * workers) * tables
    assert size == at + 16 * files + 4
    return {
        **{"id": ident, "number": number, "step": step, "mode": mode},
        **{"workers": workers, "created": created},
        "library": text(data[72:96]),
        "tables": found,
        "files": [struct.unpack_from("<qII", data, at + 16 * i) for i in range(files)],
    }


def read(folder):
    """Return the manifest, and {(table, area): array}; area STEPS has the update counts of rows.

    The update count of a table is in the manifest's tables as "steps".
    """
    manifest = read_manifest(Path(folder, "manifest.mv").read_bytes())
    arrays = {}
    for number, (size, header_crc, _) in enumerate(manifest["files"]):
        data = Path(folder, f"shard-{number:05}.mv").read_bytes()
        assert data[:8] == b"\x89MVD\r\n\x1a\n"
        version, sections, file_size, ident, index, block = struct.unpack_from("<IIqQII", data, 8)
        header, checksums_at, checksums = struct.unpack_from("<qqq", data, 40)
        assert (version, ident, index, block) == (1, manifest["id"], number, BLOCK)
        assert file_size == size == len(data) == checksums_at + 4 * checksums + 4
        assert header % 4096 == 0
        assert data[:header] == with_crc(data[:header])
        assert struct.unpack_from("<I", data, header - 4) == (header_crc,)
        crcs = struct.unpack_from(f"<{checksums}I", data, checksums_at)
        assert struct.unpack("<I", data[-4:]) == (crc32c(data[checksums_at:-4]),)
        at, place = header, 0
        for i in range(sections):
            table, area, first, rows, offset, length, checksum, steps = struct.unpack_from(
                "<IIqqqqqQ", data, 64 + 56 * i
            )
            assert (offset, checksum) == (at, place)
            about = manifest["tables"][table]
            columns = 1 if area == STEPS else about["columns"]
            kind = np.dtype("<u4" if area == STEPS else about["dtype"])
            assert length == rows * columns * kind.itemsize
            end = at + -(-length // 4096) * 4096
            assert not any(data[at + length : end])
            for begin in range(at, end, BLOCK):
                assert crc32c(data[begin : min(begin + BLOCK, end)]) == crcs[place]
                place += 1
            whole = arrays.setdefault((table, area), np.zeros((about["rows"], columns), kind))
            whole[first : first + rows] = np.frombuffer(data, kind, rows * columns, at).reshape(
                rows, columns
            )
            about["steps"] = max(about.get("steps", 0), steps)
            at = end
        assert (at, place) == (checksums_at, checksums)
    return manifest, arrays
