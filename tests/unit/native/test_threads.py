"""An interrupt at any line of a start of a thread, and of a wait for it, leaves no lock locked."""

import itertools
import sys
import unittest

from multiverso._native.threads import End, Thread


def interrupt(call, place):
    """Make a call, with KeyboardInterrupt at a line; return whether it had so many lines."""
    lines = itertools.count()

    def trace(frame, event, _):
        if event == "line" and next(lines) == place:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


class TestThreads(unittest.TestCase):
    def test_thread_that_has_started_ends_wherever_an_interrupt_comes(self):
        calls = []
        for place in itertools.count():
            thread = Thread(calls.append, place)
            was_interrupted = interrupt(lambda: (thread.start(), thread.join()), place)  # noqa: B023
            thread.join()
            self.assertEqual(calls.count(place), len(thread._numbers))
            if not was_interrupted:
                break
        self.assertEqual(calls[-1], place)
        self.assertGreater(place, 5)

    def test_end_is_known_to_all_who_wait(self):
        end, error = End(), ValueError()
        self.assertFalse(end.wait(0.001))
        waiting = [Thread(end.wait) for _ in range(3)]
        for thread in waiting:
            thread.start()
        end.set(error)
        for thread in waiting:
            thread.join()
        self.assertTrue(end.wait(0))
        self.assertIs(end.error, error)
