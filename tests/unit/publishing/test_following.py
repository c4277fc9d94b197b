"""Publications in folders: followers get what was published, bit for bit, or a named error."""

import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import sessions

import multiverso as mv
from multiverso import publishing
from multiverso.errors import PublicationError, StateError
from multiverso.initializers import Constant, RandomNormal


def live_cut(names=None):
    """Return what a reader on this machine gets of the last version."""
    with mv.attach(os.getpid()) as view:
        return view.cut(names)


def rounded(values):
    """Return float32 values rounded to bfloat16, ties to even; no NaN."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


class FolderTestCase(sessions.SessionCleanupTestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name, "published")

    def files(self):
        """Return the names of the publications' files."""
        return sorted(path.name for path in self.folder.glob("*.safetensors"))

    def check_same_bits(self, received, expected):
        self.assertEqual(received.dtype, expected.dtype)
        self.assertEqual(received.tobytes(), expected.tobytes())


class TestRandomChains(FolderTestCase):
    def publish_random_steps(self, seed, dtype=None):
        """Change random tables at random, and compare followers with a reader on this machine."""
        rng = np.random.default_rng(seed)
        full_every = int(rng.integers(1, 6))
        tables = {
            "w": mv.ArrayTable(int(rng.integers(1, 200_000)), name="w"),
            "d": mv.ArrayTable(100, name="d", dtype="float64"),
            "i": mv.MatrixTable(300, 3, name="i", dtype="int64"),
            "b": mv.MatrixTable(50, 70, name="b", dtype="bfloat16"),
            "k": mv.HashTable(4, capacity=200, name="k"),
        }
        lazy = mv.MatrixTable(10**7, 2, RandomNormal(seed=seed), name="lazy")
        views = []
        for step in range(12):
            for name in rng.choice(["w", "d", "i", "b"], 2, replace=False):
                table = tables[name]
                delta = rng.integers(-9, 9, table.shape) * (rng.random(table.shape) < 0.05)
                table.add(delta / 3 if table.dtype.kind == "f" else delta)
            keys = rng.integers(0, 40, 6)
            tables["k"].add(rng.normal(size=(6, 4)), keys=keys)
            if step % 3 == 2:
                tables["k"].remove(keys[:4])
            lazy.add(rng.normal(size=(3, 2)), row_ids=rng.integers(0, 10**7, 3))
            if step == 5:
                tables["late"] = mv.ArrayTable(7, name="late")
            mv.publish(step, to=self.folder, dtype=dtype, full_every=full_every, keep=1)
            expected = live_cut(tables)
            if step in (0, 4, 9):
                views.append(mv.follow(self.folder, timeout=60))
            for view in views:
                if view.version == step + 1 or rng.random() < 0.5:
                    self.check_follows(view, step, expected, lazy, dtype)
        for view in views:
            self.check_follows(view, step, expected, lazy, dtype)
        self.assertLessEqual(len(self.files()), full_every)

    def check_follows(self, view, step, expected, lazy, dtype):
        before = dict(zip(*view.cut(["k"])["k"], strict=True)) if view.version <= step else None
        self.assertEqual(view.wait(step + 1, timeout=60), step + 1)
        self.assertEqual(view.step, step)
        cut = view.cut()
        self.assertEqual(set(cut), {*expected, "lazy"})
        for name, values in expected.items():
            if name == "k":
                order = np.argsort(values[0])
                values = [part[order] for part in values]
                rows = rounded(values[1]) if dtype else values[1]
                self.check_same_bits(cut[name][0], values[0])
                self.check_same_bits(cut[name][1], rows)
            else:
                values = rounded(values) if dtype and values.dtype == np.float32 else values
                self.check_same_bits(cut[name], values)
        ids, rows = cut["lazy"]
        touched = lazy.get(ids)
        np.testing.assert_array_equal(rows, rounded(touched) if dtype else touched)
        if before is not None:
            self.check_changes(view, before, dict(zip(*cut["k"], strict=True)))

    def check_changes(self, view, before, now):
        keys, rows = view.changed("k")
        differs = {k for k, row in now.items() if k not in before or (row != before[k]).any()}
        self.assertLessEqual(differs, set(keys.tolist()))
        np.testing.assert_array_equal(rows, view.tables["k"].get(keys))
        gone = set(view.removed("k").tolist())
        self.assertLessEqual(before.keys() - now.keys(), gone)
        self.assertFalse(gone & now.keys())

    def test_followers_get_each_version_bit_for_bit(self):
        for seed in range(4):
            with self.subTest(seed=seed):
                self.folder = self.folder.with_name(f"published{seed}")
                with mv.session(name="followed"):
                    self.publish_random_steps(seed, dtype="bfloat16" if seed % 2 else None)


class TestFolders(FolderTestCase):
    def test_late_reader_needs_one_full_file_and_differences(self):
        with mv.session(name="followed"):
            table = mv.ArrayTable(100_000, name="w")
            table.add(np.ones(100_000))
            for step in range(7):
                table.add([1.0], index=np.s_[step : step + 1])
                mv.publish(step, to=self.folder, full_every=5, keep=1)
        sizes = {name: (self.folder / name).stat().st_size for name in self.files()}
        versions = {int(name[:8]): size for name, size in sizes.items()}
        self.assertEqual(set(versions), {6, 7})  # the second full one, and what differs from it
        self.assertGreater(versions[6], 400_000)
        self.assertLess(versions[7], 2_000)
        with mv.follow(self.folder) as view:
            self.assertEqual((view.version, view.step), (7, 6))
            np.testing.assert_array_equal(view.tables["w"].get()[:8], [2] * 7 + [1])

    def test_keep_says_how_many_publications_stay_readable(self):
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            for step in range(9):
                mv.publish(step, to=self.folder, full_every=2, keep=4)
            del table
        self.assertEqual([int(name[:8]) for name in self.files()], [5, 6, 7, 8, 9])

    def test_next_job_continues_the_numbers_with_all_values(self):
        for job in range(3):
            with mv.session(name="followed"):
                table = mv.ArrayTable(3, name="w")
                table.add([job] * 3)
                mv.publish(10 * job, to=self.folder)
                if job == 0:
                    view = mv.follow(self.folder, timeout=60)
                    self.addCleanup(view.close)
            self.assertEqual(view.wait(job + 1), job + 1)
            np.testing.assert_array_equal(view.tables["w"].get(), [job] * 3)
            self.assertEqual(len(view.changed("w")[0]), 3)

    def test_second_job_is_refused(self):
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            mv.publish(1, to=self.folder)
            script = (
                "import sys, multiverso as mv\n"
                "with mv.session(name='other'):\n"
                "    mv.ArrayTable(3)\n"
                "    mv.publish(1, to=sys.argv[1])\n"
            )
            command = [sys.executable, "-c", script, str(self.folder)]
            result = subprocess.run(command, timeout=60, capture_output=True, text=True)
            self.assertIn("another job publishes to this folder", result.stderr)
            del table

    def test_two_folders_get_the_same_versions(self):
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            for step in range(4):
                table.add([1, 2, 3])
                mv.publish(step, to=self.folder)
                mv.publish(step, to=self.folder.with_name("second"), dtype="bfloat16")
        for folder in (self.folder, self.folder.with_name("second")):
            with mv.follow(folder) as view:
                np.testing.assert_array_equal(view.tables["w"].get(), [4, 8, 12])

    def test_publishing_without_a_folder_goes_on_beside_it(self):
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            for step in range(6):
                table.add([1, 1, 1])
                mv.publish(step, to=self.folder if step % 2 else None)
        with mv.follow(self.folder) as view:
            self.assertEqual(view.step, 5)
            np.testing.assert_array_equal(view.tables["w"].get(), [6, 6, 6])

    def test_failed_publication_is_reported_and_the_next_one_is_full(self):
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            mv.publish(1, to=self.folder)
            with mv.follow(self.folder, timeout=60) as view:
                table.add([1, 1, 1])
                blocker = self.folder / "latest.json"
                content = blocker.read_bytes()
                blocker.unlink()
                blocker.mkdir()
                mv.publish(2, to=self.folder)
                with self.assertRaisesRegex(PublicationError, "expected a file"):
                    for _ in range(3):
                        mv.publish(2, to=self.folder)
                blocker.rmdir()
                blocker.write_bytes(content)
                while view.step != 3:
                    mv.publish(3, to=self.folder)
                    view.wait(timeout=60)
                np.testing.assert_array_equal(view.tables["w"].get(), [1, 1, 1])


class TestTables(FolderTestCase):
    def follow_one(self, make, change):
        with mv.session(name="followed"):
            table = make()
            change(table)
            mv.publish(1, to=self.folder)
        view = mv.follow(self.folder)
        self.addCleanup(view.close)
        return view

    def test_get_of_rows_and_keys(self):
        view = self.follow_one(
            lambda: mv.MatrixTable(5, 2, name="m"), lambda m: m.add([[1, 2]], row_ids=[3])
        )
        table = view.tables["m"]
        np.testing.assert_array_equal(table.get([3, 0]), [[1, 2], [0, 0]])
        out = np.empty((1, 2), np.float32)
        self.assertIs(table.get([3], out=out), out)
        np.testing.assert_array_equal(out, [[1, 2]])
        self.assertRaises(IndexError, table.get, [5])
        self.assertEqual((table.shape, table.is_hash, table.has_rows), ((5, 2), False, False))

    def test_keys_without_rows_have_the_initial_value_if_it_is_known(self):
        view = self.follow_one(
            lambda: mv.HashTable(2, capacity=9, name="k", init_value=7),
            lambda k: k.add([[1, 1]], keys=[5]),
        )
        table = view.tables["k"]
        np.testing.assert_array_equal(table.get([4, 5]), [[7, 7], [8, 8]])
        np.testing.assert_array_equal(table.contains([4, 5]), [False, True])
        self.assertRaises(TypeError, table.get)

    def test_random_initial_values_need_a_default(self):
        view = self.follow_one(
            lambda: mv.HashTable(2, capacity=9, name="k", init_value=RandomNormal()),
            lambda k: k.add([[1, 1]], keys=[5]),
        )
        with self.assertRaisesRegex(IndexError, "1 of 2 ids have no row, the first is 4"):
            view.tables["k"].get([4, 5])
        np.testing.assert_array_equal(view.tables["k"].get([4], default=0.5), [[0.5, 0.5]])

    def test_rows_that_never_changed_are_not_written(self):
        view = self.follow_one(
            lambda: mv.MatrixTable(10**9, 2, Constant(3), name="m"),
            lambda m: m.add([[1, 1]], row_ids=[12_345_678]),
        )
        ids, rows = view.cut()["m"]
        self.assertEqual(ids.tolist(), [12_345_678])
        np.testing.assert_array_equal(rows, [[4, 4]])
        np.testing.assert_array_equal(view.tables["m"].get([0]), [[3, 3]])

    def test_arguments_and_states(self):
        view = self.follow_one(lambda: mv.ArrayTable(3, name="w"), lambda w: None)
        with self.assertRaisesRegex(StateError, "has no table 'x'; its tables: 'w'"):
            view.cut(["x"])
        self.assertRaises(mv.OperationTimeout, view.wait, timeout=0)
        view.close()
        for call in (view.cut, view.wait, lambda: view.changed("w")):
            self.assertRaisesRegex(StateError, "closed", call)
        with self.assertRaisesRegex(StateError, "nothing has been published there"):
            mv.follow(self.folder.with_name("none"))
        with mv.session(name="followed"):
            self.assertRaises(ValueError, mv.publish, 1, to=self.folder, dtype="float16")
            self.assertRaises(ValueError, mv.publish, 1, to=self.folder, full_every=0)
        with mv.session():
            self.assertRaisesRegex(StateError, "name", mv.publish, 1, to=self.folder)
        with mv.session(name="followed", elastic=True):
            self.assertRaisesRegex(StateError, "stay the same", mv.publish, 1, to=self.folder)


class TestDamage(FolderTestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        #: The values after each step.
        self.states = {}
        with mv.session(name="followed"):
            table = mv.ArrayTable(1000, name="w")
            keyed = mv.HashTable(2, capacity=50, name="k")
            for step in range(1, 4):
                table.add(rng.normal(size=1000) * (rng.random(1000) < 0.1))
                keyed.add(rng.normal(size=(5, 2)), keys=rng.integers(0, 20, 5))
                mv.publish(step, to=self.folder)
                cut = live_cut()
                self.states[step] = (
                    cut["w"].tobytes(),
                    sorted(zip(*cut["k"], strict=True), key=lambda p: p[0]),
                )
        self.content = {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def restore(self):
        for name, content in self.content.items():
            (self.folder / name).write_bytes(content)

    def check(self):
        """Follow the folder; the result is a published state or the named error."""
        try:
            with mv.follow(self.folder) as view:
                self.check_state(view)
                return None
        except (PublicationError, StateError) as error:
            return error

    def check_state(self, view):
        weights, rows = self.states[view.step]
        self.assertEqual(view.tables["w"].get().tobytes(), weights)
        keys, values = view.cut()["k"]
        self.assertEqual(keys.tolist(), [int(key) for key, _ in rows])
        self.assertEqual(values.tobytes(), b"".join(row.tobytes() for _, row in rows))

    def test_random_damage_is_a_named_error(self):
        rng = random.Random(2)
        names = [*self.files(), "latest.json"]
        for mutation in range(1500):
            name = rng.choice(names)
            content = bytearray(self.content[name])
            match rng.randrange(5):
                case 0:
                    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                case 1:
                    del content[rng.randrange(len(content)) :]
                case 2:
                    first = rng.randrange(len(content))
                    content[first : first + 8] = rng.randbytes(8)
                case 3:
                    content += rng.randbytes(rng.randrange(1, 100))
                case 4:
                    content = bytearray(self.content[rng.choice(names)])
            (self.folder / name).write_bytes(content)
            if bytes(content) != self.content[name]:
                with self.subTest(mutation=mutation, name=name):
                    error = self.check()
                    # A tail after the second line of `latest.json` is not read.
                    if error is not None or name != "latest.json":
                        self.assertIsInstance(error, PublicationError)
                        self.assertIn(str(self.folder), error.path)
            (self.folder / name).write_bytes(self.content[name])
        self.assertIsNone(self.check())

    def test_hostile_headers_are_named_errors(self):
        from multiverso.publishing import _format

        name = self.files()[0]
        good = _format.decode(bytearray(self.content[name]), name)
        tensors = {
            key: _format.Tensor({8: "I64", 4: "F32", 2: "U16"}[value.itemsize], value)
            for key, value in good.tensors.items()
            if key != "checksum"
        }
        rng = random.Random(3)
        strange = [None, -1, 2**70, 1e300, "x", [], {}, [None], [2**40], True, [[[]]]]
        for mutation in range(1000):
            metadata = _copied(good.metadata)
            place = rng.choice([metadata, *metadata["tables"]])
            place[rng.choice([*place])] = rng.choice(strange)
            kept = {key: value for key, value in tensors.items() if rng.random() < 0.9}
            parts = _format.encode(metadata, kept)
            (self.folder / name).write_bytes(b"".join(map(bytes, parts)))
            with self.subTest(mutation=mutation, metadata=metadata):
                try:
                    with mv.follow(self.folder) as view:
                        view.cut()
                except PublicationError as error:
                    self.assertIn(str(self.folder), error.path)

    def test_view_stays_at_the_last_complete_version(self):
        second, third = self.files()[1:]
        view = mv.follow(self.folder)
        self.addCleanup(view.close)
        self.assertEqual(view.version, 3)
        (self.folder / third).unlink()
        with self.assertRaisesRegex(PublicationError, "missing"):
            mv.follow(self.folder)
        self.restore()
        (self.folder / third).write_bytes(self.content[second])
        fresh = publishing.FollowedView(self.folder)
        with self.assertRaises(PublicationError):
            fresh.wait(3, timeout=5)
        self.assertEqual(fresh.version, 2)
        self.check_state(fresh)
        self.restore()
        self.assertEqual(fresh.wait(3, timeout=5), 3)
        self.check_state(fresh)
        # What the first, failed, wait has changed is still told.
        self.assertEqual(len(fresh.changed("w")[0]), 1000)

    def test_names_outside_the_folder_are_refused(self):
        from multiverso.publishing import _format

        for name in ("../x.safetensors", "/etc/passwd", "a/b.safetensors", "x", "", 3):
            entry = {"version": 1, "step": 1, "files": [name]}
            latest = {"format": 1, "job": "", "publications": [entry]}
            (self.folder / "latest.json").write_bytes(_format.dump_latest(latest))
            with self.subTest(name), self.assertRaisesRegex(PublicationError, "names of files"):
                mv.follow(self.folder)


def _copied(metadata):
    return {
        **metadata,
        "tables": [dict(record) for record in metadata["tables"]],
    }


if __name__ == "__main__":
    unittest.main()
