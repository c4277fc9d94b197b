"""Error messages say in terms of the user's call what is wrong and what to do."""

import inspect
import unittest
from pathlib import Path

import multiverso as mv
from multiverso import errors
from multiverso._local.ranks import exit_text
from multiverso._native.exception_text import describe

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
