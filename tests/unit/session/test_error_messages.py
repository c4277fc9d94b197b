"""Error messages say in terms of the user's call what is wrong and what to do."""

import inspect
import re
import tempfile
import unittest
from pathlib import Path

import numpy as np
from sessions import SessionCleanupTestCase, SessionTestCase

import multiverso as mv
from multiverso import checkpoint, errors
from multiverso._local.ranks import exit_text
from multiverso._native.exception_text import describe
from multiverso.sync import ParamSync

ERRORS_PAGE = (Path(__file__).resolve().parents[3] / "docs" / "errors.md").read_text("utf-8")


class TestAdvice(unittest.TestCase):
    def test_every_exception_names_its_own_section_of_the_page(self):
        for name in errors.__all__:
            kind = getattr(errors, name)
            error = kind("m", rank=1) if kind is mv.errors.RankError else kind("m")
            with self.subTest(name):
                self.assertEqual(str(error), f"m\nWhat to do: multiverso explain {name}")
                self.assertRegex(ERRORS_PAGE, rf"(?m)^### {name}$")

    def test_a_class_derived_by_a_program_has_the_advice_of_its_base(self):
        class OwnError(mv.PeerLostError):
            pass

        self.assertIn("explain PeerLostError", str(OwnError("m")))

    def test_the_reason_that_other_ranks_receive_has_no_advice(self):
        self.assertNotIn("What to do", describe(mv.errors.StateError("m")))


class TestSecondInit(SessionCleanupTestCase):
    def test_names_the_arguments_that_differ(self):
        for opened, given, expected, received in (
            (
                *({"timeout": 7.5}, {"sync": True}, "sync=False, timeout=7.5, start_timeout=7.5"),
                "sync=True, timeout=1800.0, start_timeout=120.0",
            ),
            ({"staleness": 3}, {"staleness": 4}, "staleness=3", "staleness=4"),
            (
                *({}, {"nan_policy": "error", "on_peer_lost": "continue"}),
                "nan_policy='propagate', on_peer_lost='fail'",
                "nan_policy='error', on_peer_lost='continue'",
            ),
        ):
            with self.subTest(given), mv.session(**opened):
                with self.assertRaises(mv.errors.StateError) as caught:
                    mv.init(**given)
                found = f": expected {expected}, received {received}; call mv.shutdown()"
                self.assertIn(found, str(caught.exception))


class TestMisspelledArguments(SessionTestCase):
    def check(self, call, meant, **arguments):
        with self.subTest(arguments), self.assertRaisesRegex(TypeError, f"; {meant}\\?$"):
            call(**arguments)

    def test_functions_suggest_their_arguments(self):
        self.check(mv.init, "did you mean 'sync'", syncs=True)
        self.check(mv.session, "did you mean 'staleness'", stalenes=3)
        self.check(mv.save, "did you mean 'keep'", directory="x", keeps=3)
        self.check(mv.load, "did you mean 'missing_ok'", directory="x", missing=True)

    def test_tables_suggest_the_arguments_of_their_kind(self):
        self.check(mv.HashTableHandler, "did you mean 'admit'", num_col=1, capacity=9, admt=2)
        self.check(mv.ArrayTableHandler, "did you mean 'init_value'", size=3, initializer=1)

    def test_param_sync_suggests_its_arguments(self):
        weights = [np.zeros(3, np.float32)]
        self.check(ParamSync, "did you mean 'average'", arrays=weights, avrage=True)
        self.check(ParamSync, "did you mean 'sync_every'", arrays=weights, syncevery=2)


class TestScalarsAndTuples(SessionTestCase):
    def check(self, advice, call, *arguments):
        expected = f"expected .*received .*{re.escape(advice)}"
        with self.assertRaisesRegex((TypeError, ValueError), expected):
            call(*arguments)

    def test_says_how_to_write_a_list_of_one(self):
        matrix = mv.MatrixTableHandler(4, 2)
        self.check("write [2]", matrix.get, 2)
        self.check("write [1]", matrix.add, [1, 2], np.int64(1))
        self.check("write [arrays]", ParamSync, np.zeros(3, np.float32))
        self.check("write arrays.values()", ParamSync, {"w": np.zeros(3, np.float32)})

    def test_says_how_to_write_a_size(self):
        self.check("write 3", mv.ArrayTableHandler, (3,))
        self.check("write 3", mv.ArrayTableHandler, 3.0)
        self.check("use MatrixTable", mv.ArrayTableHandler, (3, 4))

    def test_says_how_to_add_a_scalar(self):
        self.check("numpy.full((3,), 1)", mv.ArrayTableHandler(3).add, 1)

    def test_says_that_a_result_needs_an_array(self):
        self.check("numpy.array", mv.aggregate, [1.0, 2.0])
        self.check("none", ParamSync, [])


class TestMessagesOfTheLibrary(SessionTestCase):
    def test_sizes_have_units(self):
        with self.assertRaisesRegex(MemoryError, r"hold 36\.4 TiB: this machine has [\d.]+ .iB "):
            mv.ArrayTableHandler(10**13)

    def test_a_folder_without_checkpoints_is_described(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, found in ((folder, "an empty folder"), (f"{folder}/none", "no folder")):
                message = f"{path}: expected a checkpoint, received {found}; with missing_ok"
                for call in (mv.load, checkpoint.verify):
                    with self.assertRaisesRegex(mv.errors.CheckpointIOError, message) as caught:
                        call(path)
                self.assertEqual(caught.exception.path, path)
            Path(folder, "file").touch()
            with self.assertRaisesRegex(
                mv.errors.CheckpointIOError, "received a folder without one"
            ):
                mv.load(folder)


class TestHelp(unittest.TestCase):
    def test_signatures_show_readable_types(self):
        for kind in (mv.ArrayTableHandler, mv.MatrixTableHandler, mv.HashTableHandler):
            methods = [member for _, member in inspect.getmembers(kind, inspect.isfunction)]
            for function in (kind, *methods):
                text = str(inspect.signature(function))
                with self.subTest(function):
                    self.assertNotIn("numpy._typing", text)
                    self.assertLess(len(text), 540)


class TestExits(unittest.TestCase):
    def test_signals_have_names(self):
        self.assertEqual(exit_text(-9), "was ended by SIGKILL")
        self.assertEqual(exit_text(-40), "was ended by signal 40")
        self.assertEqual(exit_text(3), "exited with 3")
