"""``multiverso explain`` prints the section of an error, and knows every error."""

import contextlib
import io
import unittest

from multiverso import errors
from multiverso._commands import main


def explain(name):
    """Return the exit code, what was printed, and the errors."""
    output, failures = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(failures):
        code = main(["explain", name])
    return code, output.getvalue(), failures.getvalue()


class TestExplain(unittest.TestCase):
    def test_every_exception_has_a_section(self):
        for name in (*errors.__all__, "ValueError", "TypeError", "IndexError", "MemoryError"):
            code, printed, failures = explain(name)
            self.assertEqual((code, failures), (0, ""), name)
            self.assertIn(name, printed.splitlines()[0])
            self.assertGreater(len(printed.splitlines()), 2)
            self.assertNotIn("](", printed)

    def test_last_line_of_an_error_is_a_command_that_works(self):
        for name in errors.__all__:
            kind = getattr(errors, name)
            advice = kind.__new__(kind).advice
            self.assertEqual(explain(advice.rpartition("multiverso explain ")[2])[0], 0)

    def test_numbers_and_names_of_c_lead_to_the_exception(self):
        for name in ("9", "-9", "MV_ERR_TIMEOUT", "mv_err_timeout", "multiverso.OperationTimeout"):
            self.assertEqual(explain(name)[1].splitlines()[0], "OperationTimeout")

    def test_unknown_name_gets_a_suggestion(self):
        code, printed, failures = explain("Mismatch")
        self.assertEqual((code, printed), (2, ""))
        self.assertIn("did you mean MismatchError?", failures)
