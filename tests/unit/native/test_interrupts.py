"""Exceptions reach a thread that waits in the library: from handlers, from other threads."""

import ctypes
import os
import signal
import threading
import unittest

from programs import run_program
from requirements import needs_found_sessions

import multiverso as mv

#: The longest time that a test waits, in seconds.
PATIENCE = 60.0


class StopError(Exception):
    """What a thread or a signal handler raises in these tests."""


def raise_in(thread):
    """Raise `StopError` in a thread, which notices it when it runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(StopError)
    )


def raise_stop(*_):
    raise StopError


class Waiter(threading.Thread):
    """Waits for a publication that never comes, and keeps the exception that ends the wait."""

    def __init__(self, view=None):
        super().__init__(daemon=True)
        self.view = view
        self.error = None
        self.is_waiting = threading.Event()

    def run(self):
        try:
            view = self.view or mv.attach(os.getpid())
            with view:
                self.is_waiting.set()
                view.wait(1, timeout=PATIENCE)
        except Exception as error:
            self.error = error


@needs_found_sessions
class TestInterrupts(unittest.TestCase):
    def test_other_thread_and_the_end_of_the_view_end_waits(self):
        with mv.session(name="interrupts"):
            waiters = [Waiter() for _ in range(4)]
            closed = Waiter(mv.attach(os.getpid()))
            for waiter in (*waiters, closed):
                waiter.start()
                self.assertTrue(waiter.is_waiting.wait(PATIENCE))
            for waiter in waiters:
                raise_in(waiter)
                waiter.join(PATIENCE)
                self.assertIsInstance(waiter.error, StopError)
            closed.view.close()
            closed.join(PATIENCE)
            self.assertIsInstance(closed.error, mv.errors.StateError)

    def test_handler_ends_the_wait_of_the_main_thread_while_others_wait(self):
        former = signal.signal(signal.SIGALRM, raise_stop)
        self.addCleanup(signal.signal, signal.SIGALRM, former)
        with mv.session(name="interrupts"), mv.attach(os.getpid()) as view:
            waiters = [Waiter() for _ in range(4)]
            for waiter in waiters:
                waiter.start()
            with self.assertRaises(StopError):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                view.wait(1, timeout=PATIENCE)
            mv.publish()
            for waiter in waiters:
                waiter.join(PATIENCE)
                self.assertIsNone(waiter.error)

    def test_waits_of_a_forked_child_end(self):
        with mv.session(name="interrupts"):
            waiter = Waiter()
            waiter.start()
            self.assertTrue(waiter.is_waiting.wait(PATIENCE))
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    self.wait_in_child(os.getppid())
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            mv.publish()
            waiter.join(PATIENCE)
            self.assertIsNone(waiter.error)

    def wait_in_child(self, parent):
        """End this process with 0 if a handler's exception ends its wait."""
        code = 1
        try:
            signal.signal(signal.SIGALRM, raise_stop)
            with mv.attach(parent) as view:
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                view.wait(1, timeout=PATIENCE)
        except StopError:
            code = 0
        finally:
            os._exit(code)

    def test_program_ends_while_a_thread_waits(self):
        program = """
import contextlib, os, threading, multiverso as mv
mv.init(name="interrupts")
view = mv.attach(os.getpid())
is_waiting = threading.Event()
def wait():
    with contextlib.suppress(mv.errors.StateError):  # The end of the program closes the view.
        is_waiting.set()
        view.wait(1, timeout=600)
threading.Thread(target=wait, daemon=True).start()
is_waiting.wait()
print("end")
"""
        self.assertEqual(run_program(program), (0, "end\n", ""))
