"""Names of tables come back as they were given; long and equal ones do not mix tables up."""

import gc
import inspect
import os
import sys
import unittest
import warnings

import hypothesis
import hypothesis.strategies as st
import numpy as np
from folders import FolderTestCase
from requirements import needs

import multiverso as mv
from multiverso import checkpoint as checkpoints
from multiverso.sync import ParamSync
from multiverso.sync._layout import shortened

#: Characters that JSON, C, a terminal or a file format may treat in a special way.
AWKWARD = (
    *("w", 'a "quoted" name', "back\\slash\\", "line\nbreak\ttab\r", "\x1b[31mred\x07", "\x7f\x9f"),
    *("{[,:]}", "über/日本語/😀", "\u2028\ufffd\ufeff", " ", "'", "%s%n", "../../etc", "[bold]"),
    *("€" * 21, "x" * 63, "w.steps", "null"),
)
names = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1)


def short(name):
    """Return as many characters of a name as a table can have."""
    return name.encode()[:63].decode(errors="ignore")


class TestNames(FolderTestCase):
    def check_come_back(self, given):
        """Check that statistics, readers and checkpoints have these names."""
        with mv.session(name="names"):
            tables = [mv.ArrayTableHandler(2, i, name=name) for i, name in enumerate(given)]
            self.assertEqual([table.name for table in tables], given)
            with mv.attach(os.getpid()) as view:
                self.assertEqual(list(view.tables), given)
                values = [table.get()[0] for table in view.tables.values()]
            self.assertEqual((list(mv.stats()), values), (given, [*range(len(given))]))
            mv.save(self.folder)
        self.check_saved(self.folder, given)

    def check_saved(self, folder, given):
        with checkpoints.Checkpoint(folder) as opened:
            self.assertEqual([table.name for table in opened.tables], given)
            self.assertEqual([float(opened.read(name)[0]) for name in given], [*range(len(given))])

    def test_awkward_names_come_back(self):
        self.check_come_back(list(AWKWARD))

    @hypothesis.settings(max_examples=20, deadline=None)
    @hypothesis.given(st.lists(names.map(short), min_size=1, max_size=8, unique=True))
    def test_any_names_come_back(self, given):
        self.check_come_back(given)

    @needs("safetensors")
    def test_names_come_back_from_safetensors(self):
        with mv.session():
            kept = [mv.ArrayTableHandler(2, i, name=name) for i, name in enumerate(AWKWARD)]
            mv.save(self.folder / "one")
            del kept
        checkpoints.export_safetensors(self.folder / "one", self.folder / "file")
        checkpoints.import_safetensors(self.folder / "file", self.folder / "two")
        self.check_saved(self.folder / "two", list(AWKWARD))


class TestEqualNames(unittest.TestCase):
    def test_warning_names_both_places_of_creation(self):
        with mv.session():
            first = mv.ArrayTableHandler(2, name="w")
            line = inspect.currentframe().f_lineno
            with self.assertWarnsRegex(RuntimeWarning, "the name 'w'") as caught:
                second = mv.MatrixTableHandler(2, 3, name="w")
            self.assertEqual((caught.filename, caught.lineno), (__file__, line + 2))
            for number in (line - 1, line + 2):
                self.assertIn(f"{__file__}:{number}", str(caught.warning))
            self.assertEqual(list(mv.stats()), ["w (table 0)", "w"])
            del first, second

    def test_tables_may_become_garbage_at_any_line_of_a_creation(self):
        def trace(frame, *_):
            if frame.f_code.co_name == "_note_creation" and next(lines) == 0:
                gc.collect()
            return trace

        for at in range(20):
            lines = iter(range(-at, 1000))
            with mv.session(), self.assertWarns(RuntimeWarning):
                cycle = [mv.ArrayTableHandler(2, name="w")]
                cycle = cycle.append(cycle)
                sys.settrace(trace)
                table = mv.ArrayTableHandler(2, name="w")
                sys.settrace(None)
                table = mv.ArrayTableHandler(2, name="w"), table

    def test_tables_that_cannot_be_confused_cause_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                with mv.session():
                    mv.ArrayTableHandler(2, name="w")
                    mv.ArrayTableHandler(2, name="w")  # The first one has been released.
                    table = mv.ArrayTableHandler(2)
                    ParamSync([np.zeros(2), np.zeros(3, np.float32)], name="net")
                    del table


class TestNamesOfTensors(FolderTestCase):
    def test_names_of_layers_that_differ_at_their_end_stay_apart(self):
        layer = "model.encoder.layers.11.self_attention.output_projection.weight."
        for options in ({}, {"fragments": 2, "weight": 1.0}):
            folder = self.folder / str(len(options))

            def sync(end, value, options=options):
                arrays = [np.full(n, value, np.float32) for n in (2, 3)]
                return ParamSync(arrays, name=layer + end, **options)

            with mv.session(), warnings.catch_warnings():
                warnings.simplefilter("error")
                kept = [sync("first", 1), sync("second", 2)]
                mv.save(folder)
                del kept
            with mv.session():
                syncs = {2: sync("second", 0), 1: sync("first", 0)}
                mv.load(folder)
                for value, loaded in syncs.items():
                    for table in loaded.tables:
                        np.testing.assert_array_equal(table.get(), value)

    @hypothesis.example("x" * 20, "é" * 10, " 123")
    @hypothesis.given(names, names, st.sampled_from(["", " 0", " 123"]))
    def test_names_that_differ_stay_different_and_short_ones_as_they_are(self, one, other, suffix):
        both = shortened(one, suffix), shortened(other, suffix)
        self.assertEqual(one == other, both[0] == both[1])
        for given, name in zip((one, other), both, strict=True):
            if len((given + suffix).encode()) <= 24:
                self.assertEqual(name, given + suffix)
            self.assertLessEqual(len(name.encode()), 24)
            self.assertTrue(name.endswith(suffix))
