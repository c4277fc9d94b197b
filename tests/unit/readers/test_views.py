"""Views show what a job has published, in the same way over its memory and over a folder."""

import os

import numpy as np
from publications import FolderTestCase
from requirements import needs_found_sessions

import multiverso as mv
from multiverso.errors import StateError, UnsupportedError
from multiverso.initializers import Constant, RandomNormal


class ViewCases:
    """What holds over any store; `open` returns a view of one."""

    def setUp(self):
        super().setUp()
        mv.init(name=f"views-{os.getpid()}")
        self.rng, self.step, self.view = np.random.default_rng(1), 0, None
        self.tables = {
            "array": mv.ArrayTable(1000, name="array", dtype="float64"),
            "random": mv.ArrayTable(70_000, RandomNormal(seed=3), name="random"),
            "half": mv.MatrixTable(40, 3, name="half", dtype="bfloat16"),
            "matrix": mv.MatrixTable(40, 3, name="matrix", dtype="int32"),
            "keyed": mv.HashTable(2, 100, 7, name="keyed"),
        }

    def publish(self, *, waits=True):
        """Change the tables at random, publish them, and bring the view to that version."""
        ids = self.rng.integers(0, 40, 6)
        for table in self.tables.values():
            if isinstance(table, mv.ArrayTable):
                table.add(np.bincount(ids * (table.size // 40), minlength=table.size))
            else:
                table.add(self.rng.integers(-1, 2, (6, table.num_col)), ids)
        if "keyed" in self.tables:
            self.tables["keyed"].remove(ids[:3])
        self.step += 10
        version = mv.publish(self.step, to=self.folder, full_every=3)
        if self.view is None:
            self.view = self.open()
            self.addCleanup(self.view.close)
        if waits:
            self.assertEqual(self.view.wait(version, timeout=60), version)

    def test_tables_are_those_that_were_published(self):
        for _ in range(4):
            self.publish()
            cut, shown = self.view.cut(), self.view.tables
            self.assertEqual((cut.version, cut.step), (self.view.version, self.step))
            self.assertEqual((self.view.step, [*shown], [*cut]), (self.step, *[[*self.tables]] * 2))
            for name, table in self.tables.items():
                seen = shown[name].name, shown[name].dtype, shown[name].is_hash
                self.assertEqual(seen, (name, table.value_dtype, name == "keyed"))
                if name == "keyed":
                    keys, rows = cut[name]
                    self.assertEqual(sorted(keys), sorted(next(table.items())[0]))
                    self.check_same_bits(rows, table.get(keys, insert=False))
                    self.check_same_bits(shown[name].get(keys), rows)
                    self.assertEqual(shown[name].get([99]).tolist(), [[7, 7]])
                    continue
                values = table.get()
                out = np.empty(values.shape[::-1], values.dtype).T
                self.assertIs(shown[name].get(out=out), out)
                for received in (cut[name], shown[name].get(), np.ascontiguousarray(out)):
                    self.check_same_bits(received, values)
                if values.ndim == 2:
                    self.check_same_bits(shown[name].get([5, 0, 5]), values[[5, 0, 5]])
                    self.assertTrue(shown[name].contains([39]))
            with self.view.pinned(["array", "matrix"]) as pinned:
                for name, values in pinned.items():
                    self.check_same_bits(values, cut[name])
                    with self.assertRaises(ValueError):
                        values[0] = 1

    def test_a_copy_follows_what_changes(self):
        copies = {name: {} for name in self.tables}
        for _ in range(6):
            self.publish()
            for name, copy in copies.items():
                before, (ids, rows) = dict(copy), self.view.changed(name)
                copy.update(zip(ids.tolist(), rows.tolist(), strict=True))
                self.assertEqual([id_ for id_ in ids.tolist() if before.get(id_) == copy[id_]], [])
                for key in self.view.removed(name).tolist():
                    del copy[key]
                now = self.view.cut([name])[name]
                parts = now if name == "keyed" else (np.arange(len(now)), now)
                self.assertEqual(copy, dict(zip(*(part.tolist() for part in parts), strict=True)))
                np.testing.assert_array_equal(self.view.changed(name)[0], ids)

    def test_keys_of_a_table_that_came_again_are_told(self):
        self.publish()
        keys, former = set(self.view.changed("keyed")[0].tolist()), self.view.tables["keyed"]
        del self.tables["keyed"]
        self.publish(waits=False)  # The view passes over this version.
        self.tables["keyed"] = mv.HashTable(2, 100, name="keyed")
        self.publish()
        now = set(self.view.changed("keyed")[0].tolist())
        self.assertEqual(set(self.view.removed("keyed").tolist()), keys - now)
        self.assertRaises(StateError, former.get, [1])
        del self.tables["keyed"]
        self.publish()
        self.assertRaisesRegex(StateError, "no table 'keyed'; its", self.view.changed, "keyed")

    def test_wrong_calls_are_named_errors(self):
        self.publish()
        view, tables = self.view, self.view.tables
        for error, text, call, *arguments in (
            (TypeError, "expected ids, because only some rows exist", tables["keyed"].get),
            (TypeError, "an array has no rows", tables["array"].get, [1]),
            (TypeError, "is not an array: call get", np.asarray, tables["array"]),
            (IndexError, "row.ids", tables["matrix"].get, [40]),
            (IndexError, "row.ids", tables["matrix"].get, np.array([3, -1])),
            (TypeError, "out: ", tables["matrix"].get, None, np.empty((40, 3))),
            (ValueError, "out: ", tables["matrix"].get, [1], np.empty((2, 3), "int32")),
            (StateError, "no table 'x'; its tables: 'array'", view.cut, ["x"]),
            (StateError, "no table 'x'; its tables: 'array'", view.changed, "x"),
            (StateError, "no table 'x'; its tables: 'array'", view.pinned(["x"]).__enter__),
            (TypeError, "tables: expected several", view.cut, "array"),
            (ValueError, "all of whose rows exist", view.pinned(["keyed"]).__enter__),
            (mv.OperationTimeout, "waited for version 2", view.wait, None, 0),
        ):
            with self.subTest(text):
                self.assertRaisesRegex(error, text, call, *arguments)
        view.close()
        for call in (view.cut, view.wait, tables["array"].get, lambda: view.changed("array")):
            self.assertRaises(StateError, call)
        self.assertRaises(StateError, lambda: view.tables)


@needs_found_sessions
class TestMemory(ViewCases, FolderTestCase):
    def open(self):
        return mv.attach(os.getpid())

    def test_what_memory_does_not_tell_is_refused(self):
        self.publish()
        keyed = self.view.tables["keyed"]
        self.assertRaisesRegex(UnsupportedError, "multiverso.follow", keyed.contains, [1])
        self.assertRaisesRegex(UnsupportedError, "default=", keyed.get, [1], default=3.0)

    def test_a_table_stays_in_the_version_that_has_it(self):
        table = mv.ArrayTable(2, 1, name="later")
        with mv.attach(os.getpid()) as view:
            later = view.tables["later"]
            self.assertRaisesRegex(mv.OperationTimeout, "version 1", view.cut, timeout=0.01)
            mv.publish(7)
            del table
            self.assertEqual(view.cut()["later"].tolist(), [1, 1])
            self.assertRaisesRegex(StateError, "released", later.get)


@needs_found_sessions
class TestFolder(ViewCases, FolderTestCase):
    def open(self):
        return mv.follow(self.folder, timeout=60)

    def test_rows_that_do_not_exist(self):
        self.tables["unknown"] = mv.HashTable(2, 99, RandomNormal(), name="unknown")
        self.tables["lazy"] = mv.MatrixTable(10**9, 2, Constant(3), name="lazy")
        for name in ("unknown", "lazy"):
            self.tables[name].add([[1, 1]], [12])
        self.publish()
        unknown, lazy = (self.view.tables[name] for name in ("unknown", "lazy"))
        self.assertEqual(unknown.contains([99, 12]).tolist(), [False, True])
        text = "1 of 2 ids have no row, the first is 99"
        self.assertRaisesRegex(IndexError, text, unknown.get, [12, 99])
        self.assertEqual(unknown.get([99], default=0.5).tolist(), [[0.5, 0.5]])
        self.assertEqual(lazy.get([50, 12])[:1].tolist(), [[3, 3]])
        self.assertRaises(TypeError, lazy.get)
        self.assertLess(len(self.view.cut(["lazy"])["lazy"][0]), 100)
        with self.view.lock, self.assertRaisesRegex(StateError, "without view.lock"):
            self.view.wait(timeout=60)
