"""Checkpoints of hash tables: the documented bytes, and files that no table can have written."""

import struct

import checkpoint_bytes
import numpy as np
from folders import FolderTestCase
from programs import run_program

import multiverso as mv
from multiverso import checkpoint as checkpoints

KEYS = np.random.default_rng(1).integers(-(2**63), 2**63, 3000)
COLUMNS = 3


def stripe_of(key, stripes):
    """Return the stripe of a key, as docs/checkpoint-format.md describes it."""
    mask = 2**64 - 1
    x = (int(key) + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return ((x ^ x >> 31) >> 32) * stripes >> 32


class TestHashCheckpoints(FolderTestCase):
    def save(self):
        """Save a table with the updater "adam"; return the values of its keys."""
        with mv.session():
            table = mv.HashTableHandler(COLUMNS, 4000, name="w", updater="adam")
            table.add(np.random.default_rng(2).standard_normal((3000, COLUMNS)), KEYS)
            table.add(np.ones((10, COLUMNS)), KEYS[:10])
            mv.save(self.folder, step=1)
            return table.get(KEYS)

    def test_bytes_match_the_documented_format(self):
        values = self.save()
        manifest, arrays = checkpoint_bytes.read(checkpoints.latest(self.folder))
        table = manifest["tables"][0]
        self.assertEqual((manifest["version"], table["kind"], table["rows"] % 512), (2, 2, 0))
        steps = arrays[0, checkpoint_bytes.STEPS].ravel()
        rows = np.flatnonzero(steps)
        keys = arrays[0, checkpoint_bytes.KEYS][rows, 0]
        self.assertEqual(sorted(keys), sorted(KEYS))
        for key, row in zip(keys, rows, strict=True):
            self.assertEqual(stripe_of(key, table["rows"] // 512), row // 512)
        order = np.argsort(KEYS)
        np.testing.assert_array_equal(arrays[0, 0][rows][np.argsort(keys)], values[order])
        counts = np.full(3000, 1)
        counts[:10] = 2
        np.testing.assert_array_equal(steps[rows][np.argsort(keys)], counts[order])
        with checkpoints.Checkpoint(self.folder) as opened:
            opened.verify()
            self.assertTrue(opened.tables[0].is_hash_table)
            self.assertEqual(opened.tables[0].shape, (3000, COLUMNS))
            order_of_keys = np.argsort(opened.read_keys("w"))
            np.testing.assert_array_equal(opened.read("w")[order_of_keys], values[order])
            self.assertEqual(opened.read("w", 1).shape, (3000, COLUMNS))

    def forge(self, original, offset, form, value):
        """Write the checkpoint with another number at that byte of the area of keys."""
        checksums_at, num_checksums = struct.unpack_from("<qq", original, 48)
        sections = [
            struct.unpack_from("<IIqqqqqQ", original, 64 + 56 * i)
            for i in range(struct.unpack_from("<I", original, 12)[0])
        ]
        section = next(s for s in sections if s[1] == checkpoint_bytes.KEYS)
        at, end, first_checksum = section[4], section[4] + section[5], section[6]
        data = bytearray(original)
        struct.pack_into(form, data, at + offset, value)
        padded = end + -(end - at) % 4096
        crcs = list(struct.unpack_from(f"<{num_checksums}I", data, checksums_at))
        crcs[first_checksum] = checkpoint_bytes.crc32c(data[at:padded])
        struct.pack_into(f"<{num_checksums}I", data, checksums_at, *crcs)
        data = checkpoint_bytes.with_crc_from(data, checksums_at)
        (checkpoints.latest(self.folder) / "shard-00000.mv").write_bytes(data)

    def test_keys_that_could_expire_are_loaded_with_a_line_in_the_log(self):
        values = self.save()
        path = checkpoints.latest(self.folder) / "shard-00000.mv"
        original = path.read_bytes()
        self.forge(original, 12, "<I", 160)  # The first key has not been used for ten seconds.
        np.save(self.folder / "expected.npy", values)
        np.save(self.folder / "keys.npy", KEYS)
        program = """
            import sys, numpy as np, multiverso as mv
            folder = sys.argv[1]
            with mv.session():
                table = mv.HashTable(3, 4000, name="w", updater="adam")
                mv.load(folder)
                rows = table.get(np.load(folder + "/keys.npy"), insert=False)
                np.testing.assert_array_equal(rows, np.load(folder + "/expected.npy"))
                mv.save(folder + "/again")
                mv.load(folder + "/again")
        """
        status, output, errors = run_program(program, self.folder)
        self.assertEqual(status, 0, errors)
        line = "the keys of table 'w' had an expiry (ttl) and are loaded without it: remove"
        self.assertEqual((output + errors).count(line), 1, errors)

    def test_keys_in_wrong_rows_are_rejected_before_a_table_changes(self):
        self.save()
        path = checkpoints.latest(self.folder) / "shard-00000.mv"
        original = path.read_bytes()
        with checkpoints.Checkpoint(self.folder) as opened:
            key = int(opened.read_keys("w")[0])
        other = next(key for key in range(1000) if stripe_of(key, 13) > 0)
        with mv.session():
            table = mv.HashTableHandler(COLUMNS, 4000, name="w", updater="adam")
            table.add(np.ones((1, COLUMNS)), [5])
            for message, change in (("cannot be in row", other), ("is in two rows", key)):
                self.forge(original, 16, "<q", change)
                with self.assertRaisesRegex(mv.errors.CheckpointCorruptError, message):
                    table.load(self.folder)
                self.assertEqual((len(table), table.get([5])[0, 0] < 0), (1, True))
            path.write_bytes(original)
            self.assertEqual(table.load(self.folder), 1)
            self.assertEqual(len(table), 3000)
