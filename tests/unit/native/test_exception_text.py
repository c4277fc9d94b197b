"""The description of an exception that other ranks receive."""

import unittest
from pathlib import Path
from unittest import mock

from multiverso._native.exception_text import describe


def raised(error):
    """Return `error` after it has been raised and caught in this file."""
    try:
        raise error
    except Exception as caught:
        return caught


class TestDescribe(unittest.TestCase):
    def test_names_the_exception_its_message_and_the_line_of_the_user(self):
        pattern = rf"^ValueError: bad batch \({Path(__file__).name}:\d+\)$"
        self.assertRegex(describe(raised(ValueError("bad batch"))), pattern)

    def test_is_one_line_with_the_message_and_without_notes(self):
        error = ValueError("bad\n  batch")
        # add_note, which sets this attribute, is missing from Python 3.10.
        error.__notes__ = ["first\nsecond"]
        self.assertRegex(describe(raised(error)), r"^ValueError: bad batch \([^()]*\)$")

    def test_syntax_error_is_described_by_its_message(self):
        try:
            compile("1 +", "train.py", "exec")
        except SyntaxError as error:
            error.__notes__ = ["a note"]
            self.assertRegex(describe(error), r"^SyntaxError: invalid syntax \(.*\)$")

    def test_long_message_is_cut(self):
        self.assertRegex(describe(raised(ValueError("x" * 999))), r"^.{297}\.\.\. \(.*\)$")

    def test_folder_whose_name_begins_with_multiverso_is_the_users(self):
        package = Path(describe.__code__.co_filename).parents[1]
        code = compile("raise ValueError", f"{package}_example/train.py", "exec")
        try:
            exec(code)
        except ValueError as error:
            self.assertEqual(describe(error), "ValueError (train.py:1)")

    def test_cell_of_a_notebook_has_the_number_that_the_notebook_shows(self):
        notebook = mock.Mock()
        notebook.get_ipython().compile.format_code_name = {"/tmp/1.py": ("Cell", "In[3]")}.get
        with mock.patch.dict("sys.modules", IPython=notebook):
            try:
                exec(compile("1 / 0", "/tmp/1.py", "exec"))
            except ZeroDivisionError as error:
                self.assertRegex(describe(error), r" \(Cell In\[3\]:1\)$")
