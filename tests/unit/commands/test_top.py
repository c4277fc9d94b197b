"""The titles and states that ``multiverso top`` shows; tests/mpi/test_top.py has real jobs."""

import socket
import unittest

from multiverso._commands import _prometheus, top


def member(state, alive=True, stopped=False):
    return {"state": state, "alive": alive, "stopped": stopped}


class TestDescriptions(unittest.TestCase):
    def test_state_of_a_process_that_has_gone_is_died(self):
        for state, alive, stopped, expected in (
            ("here", True, False, "here"),
            ("here", True, True, "stopped"),
            ("here", False, False, "died"),
            ("left", False, False, "left"),
            ("closed", True, False, "closed"),
        ):
            self.assertEqual(top._state_of(member(state, alive, stopped)), expected)

    def test_elastic_job_counts_who_joined_and_left(self):
        members = [member("here"), member("here"), member("here", False), member("left")]
        job = {"elastic": True, "max_workers": 8, "ranks": 4, "members": members}
        described = top._describe_ranks(job)
        self.assertEqual(described, "elastic: 2 of at most 8 workers, 4 joined, 2 left")
        described = top._describe_ranks({**job, "max_workers": 0})
        self.assertEqual(described, "elastic: 2 workers, 4 joined, 2 left")

    def test_other_job_has_a_number_of_ranks(self):
        job = {"elastic": False, "max_workers": 0, "ranks": 3, "members": [member("here")]}
        self.assertEqual(top._describe_ranks(job), "3 ranks")

    def test_control_characters_in_names_are_escaped(self):
        given = "a \x1b[31m\n\x9f\u200b ü 日本 [bold] \\"
        self.assertEqual(top._printable(given), "a \\x1b[31m\\n\\x9f\\u200b ü 日本 [bold] \\")

    def test_labels_of_metrics_are_escaped(self):
        self.assertEqual(_prometheus.label('a "b"\\\nc'), 'a \\"b\\"\\\\\\nc')

    def test_taken_port_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            with self.assertRaisesRegex(OSError, r"cannot serve at 127.0.0.1:\d+: Address"):
                _prometheus.serve("127.0.0.1", taken.getsockname()[1], print)
