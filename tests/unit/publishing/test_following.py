"""Publications in folders: followers get what was published, bit for bit, or a named error."""

import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
from publications import FolderTestCase, live_cut
from requirements import is_installed

import multiverso as mv
from multiverso.errors import PublicationError, StateError
from multiverso.initializers import Constant, RandomNormal
from multiverso.publishing._encoding import DenseEncoder
from multiverso.publishing._publisher import Publisher


def rounded(values):
    """Return float32 values rounded to bfloat16, ties to even; no NaN."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


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
            "h": mv.MatrixTable(50, 70, name="h", dtype="float16"),
            "k": mv.HashTable(4, capacity=200, name="k"),
        }
        lazy = mv.MatrixTable(10**7, 2, RandomNormal(seed=seed), name="lazy")
        views = []
        for step in range(12):
            for name in rng.choice(["w", "d", "i", "b", "h"], 2, replace=False):
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
                # float16 takes no more bytes than bfloat16.
                is_rounded = dtype and values.dtype == np.float32 and name != "h"
                values = rounded(values) if is_rounded else values
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
    def test_a_version_that_fails_has_a_number_too(self):
        # The other nodes count it, so this one must, wherever it fails.
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            mv.publish(to=self.folder)
            fails = RuntimeError("no memory")
            with (
                mock.patch.object(DenseEncoder, "encode", side_effect=fails),
                self.assertRaises(RuntimeError),
            ):
                for _ in range(1000):  # It raises when the thread has failed.
                    mv.publish(to=self.folder)
            with (
                mock.patch.object(Publisher, "_encoder", side_effect=fails),
                self.assertRaises(RuntimeError),
            ):
                mv.publish(to=self.folder)
            table.add([1, 2, 3])
            version = mv.publish(to=self.folder)
        with mv.follow(self.folder) as view:
            self.assertEqual(view.version, version)
            self.assertEqual(view.tables["w"].get().tolist(), [1, 2, 3])

    def test_ids_that_are_no_rows_are_refused(self):
        with mv.session(name="followed"):
            tables = [
                mv.MatrixTable(4, 2, name="m"),
                mv.MatrixTable(4, 2, Constant(1), name="lazy"),
                mv.HashTable(2, capacity=8, name="k"),
            ]
            mv.publish(to=self.folder)
            del tables
        with mv.follow(self.folder) as view:
            for name in ("m", "lazy"):
                for ids in ([-1], [0, 4], np.array([2**40]), range(3, 5)):
                    with self.subTest(name, ids=ids), self.assertRaises(IndexError):
                        view.tables[name].get(ids)
            self.assertEqual(view.tables["k"].get([-1, 2**40]).tolist(), [[0, 0]] * 2)

    def test_array_with_an_initializer_is_published(self):
        with mv.session(name="followed"):
            table = mv.ArrayTable(100_000, RandomNormal(seed=3), name="w")
            for step in range(4):
                mv.publish(step, to=self.folder, full_every=2)
                with mv.follow(self.folder, timeout=60) as view:
                    self.assertEqual(view.wait(step + 1, timeout=60), step + 1)
                    self.check_same_bits(view.cut()["w"], table.get())
                table.add([1.0], index=np.s_[70_000 + step : 70_001 + step])

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

    def test_addresses_of_fsspec_are_folders(self):
        if not is_installed("fsspec"):
            self.skipTest("needs fsspec")
        memory, local = "memory://published", f"file://{self.folder}"
        with mv.session(name="followed"):
            table = mv.ArrayTable(3, name="w")
            for step in range(8):
                table.add([1, 1, 1])
                mv.publish(step, to=memory, full_every=3, keep=1)
                mv.publish(step, to=local)
            with mv.follow(memory, timeout=60) as view:
                view.wait(8, timeout=60)
                np.testing.assert_array_equal(view.tables["w"].get(), [8, 8, 8])
        with mv.follow(self.folder) as view:
            np.testing.assert_array_equal(view.tables["w"].get(), [8, 8, 8])
        import fsspec

        names = [name for name in fsspec.filesystem("memory").ls("/published", detail=False)]
        self.assertEqual(len(names), 3, names)  # latest.json, and versions 7 and 8

    def test_publishing_without_a_folder_continues_beside_it(self):
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
                with self.assertRaisesRegex(PublicationError, "expected a regular file"):
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


if __name__ == "__main__":
    unittest.main()
