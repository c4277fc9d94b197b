"""Raises the exception of a signal handler at every line of calls, for `Case`s of any test file.

A test file names its cases in groups and runs itself as a program for each: its class is that of
`class_of`, and it ends with ``main(GROUPS, ...)``.

A tracer raises InterruptionError at each place to which a call comes. The places are the beginnings
of the package's lines, and the moments after its calls have returned, before their results are
stored, at which Python raises the exceptions of signal handlers. A place that several calls share
is tried once for each line that leads to it, and once more in a loop. After each interrupt the
values are those before the call or those after it, arrays to which the library writes have been
kept, and the same call works next. In the end there are as many descriptors, threads and maps of
shared memory as before.
"""

import contextlib
import dis
import functools
import gc
import inspect
import os
import sys
import tempfile
import threading
import time
import unittest
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from programs import run_python

import multiverso as mv

PACKAGE = str(Path(mv.__file__).parent)
CALLS = {code for name, code in dis.opmap.items() if name.startswith("CALL")}
#: The sizes of the arrays to which the library writes.
SIZES = (40_000, 200 * 8, 67 * 8, 8)
SPECIAL = ("__iter__", "__len__", "__contains__", "__enter__", "__exit__")


def ends_with(code):
    """Return whether the code ends a `with` block, where Python runs no signal handler."""
    return code[:6] == bytes([dis.opmap["LOAD_CONST"], code[1]]) * 3


class InterruptionError(Exception):
    """Stands for any exception of a handler: what catches KeyboardInterrupt catches fewer."""


class Interrupt:
    """Raises InterruptionError at the first place of its block that has not been `seen`."""

    def __init__(self, seen: set[Any]) -> None:
        self.seen = seen
        self.where = None
        self.last: dict[Any, int] = {}
        self.turns: Counter[Any] = Counter()

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind, error, traceback):
        sys.settrace(None)
        self.last.clear()
        return kind is InterruptionError

    def trace(self, frame, event, _):
        # A wait in the library runs these functions: another test interrupts waits.
        code = frame.f_code
        is_wait = code.co_name in ("_run", "_reason_to_end")
        if is_wait or not code.co_filename.startswith(PACKAGE):
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            return self.trace
        is_place = event == "line" and not ends_with(code.co_code[frame.f_lasti :])
        if event == "opcode":
            is_place = self.last.get(frame) in CALLS
            self.last[frame] = code.co_code[frame.f_lasti]
        elif event == "return":
            self.last.pop(frame, None)
        if is_place and self.where is None:
            place = (code, event, frame.f_lasti, frame.f_back.f_code, frame.f_back.f_lineno)
            self.turns[place] += 1
            turn = (place, min(self.turns[place], 2))
            if turn not in self.seen:
                self.seen.add(turn)
                self.where = f"{event} {code.co_filename}:{frame.f_lineno}"
                raise InterruptionError
        return self.trace


class Case(NamedTuple):
    """A call, which increases `value` by `step` or not at all. `undo` ends each trial.

    `make` returns the argument of all three. `options` are those of the session, or None if the
    call opens or closes it.
    """

    call: Callable[[Any], Any]
    make: Callable[[], Any] = lambda: None
    value: Callable[[Any], Any] = lambda _: 0
    step: float = 0
    undo: Callable[[Any], Any] = lambda _: None
    options: dict[str, Any] | None = {}


def used():
    """Return what the process uses: descriptors, threads and files in shared memory."""
    gc.collect()
    gc.collect()
    paths = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    names = [os.readlink(path) for path in paths if os.path.lexists(path)]
    names += [thread.name for thread in threading.enumerate()]
    for line in Path("/proc/self/maps").read_text().splitlines():
        if ("/multiverso" in line or ":multiverso" in line) and ".so" not in line:
            names.append(f"map {line.split()[5]}")
    return Counter(names)


def settled():
    """Return what is used when threads in the background have nothing more to do."""
    now = None
    while now != (now := used()):
        time.sleep(0.05)
    return now


def shut(_):
    """Close the session, if one is open."""
    if mv.is_initialized():
        mv.shutdown()


@contextlib.contextmanager
def made(case):
    """Yield the argument of a case in its session."""
    is_own = case.options is None
    try:
        with contextlib.nullcontext() if is_own else mv.session(name="interrupts", **case.options):
            yield case.make()
            if is_own:
                shut(None)
    except BaseException:
        sys.stderr.write(f"in the case of line {case.call.__code__.co_firstlineno}\n")
        raise


def try_every_place(case, it, seen):
    """Interrupt the call of a case at every place that has not been seen."""
    for _ in range(2):
        case.call(it)
        case.undo(it)
    before = settled()
    is_interrupted = True
    while is_interrupted:
        earlier = np.array(case.value(it), "float64")
        with Interrupt(seen) as interrupt:
            case.call(it)
        is_interrupted = interrupt.where is not None
        # The library would write to these arrays if it still used freed ones of the same size.
        mine = [np.full(size, -1.0, "float32") for size in SIZES]
        change = np.unique(np.array(case.value(it), "float64") - earlier)
        possible = ([0], [case.step]) if is_interrupted else ([case.step],)
        assert change.tolist() in possible, (interrupt.where, change)
        assert all((each == -1).all() for each in mine), interrupt.where
        case.undo(it)
        try:
            case.call(it)
        except BaseException as error:
            msg = f"the call does not work after an interrupt at {interrupt.where}"
            raise AssertionError(msg) from error
        case.undo(it)
    after = settled()
    assert after == before, f"after: {after - before}, before: {before - after}"


def run(cases):
    """Interrupt the calls of all cases at every place."""
    seen: set[Any] = set()
    for case in cases:
        with made(case) as it:
            try_every_place(case, it, seen)
    sys.stdout.write(f"{len(seen)} interrupts\n")


def functions_of(found, *classes):
    """Return the code of functions by their names, and of the public methods of classes."""
    found = dict(found)
    for kind in classes:
        names = [name for name in dir(kind) if name in SPECIAL or not name.startswith("_")]
        # A former name has only an error that says what to use instead.
        found |= {f"{kind.__name__}.{n}": getattr(kind, n) for n in names if hasattr(kind, n)}
    found = {name: inspect.unwrap(value) for name, value in found.items()}
    return {name: value.__code__ for name, value in found.items() if inspect.isfunction(value)}


def print_missing(cases, functions, exceptions):
    """Print the functions that no case calls."""
    called = set()
    for case in cases:
        with made(case) as it:
            sys.setprofile(lambda frame, *_: called.add(frame.f_code))
            case.call(it)
            sys.setprofile(None)
            case.undo(it)
    missing = {name for name, code in functions.items() if code not in called}
    sys.stdout.write(" ".join(sorted(missing - set(exceptions))))


def folder():
    """Return a new folder, which the end of the program removes."""
    return Path(tempfile.mkdtemp())


def main(groups, functions, exceptions):
    """Run the group that the command names, or print what no case calls."""
    sys.unraisablehook = lambda _: None  # An interrupt in a finalizer reaches nobody.
    every = [case for cases in groups.values() for case in cases]
    with tempfile.TemporaryDirectory() as tempfile.tempdir:
        if sys.argv[1] == "missing":
            print_missing(every, functions, exceptions)
        else:
            run(groups[sys.argv[1]])


def class_of(file, groups):
    """Return a class with a test of each group of the file, and one of what no case calls."""

    class Tests(unittest.TestCase):
        def run_here(self, argument, printed=r"\d+ interrupts\n"):
            command = ("-W", "ignore", file, argument)
            support = [Path(__file__).parent]
            status, out, err = run_python(*command, first_on_path=support, timeout=300)
            self.assertEqual(status, 0, out + err)
            self.assertRegex(out, f"^{printed}$")

        def test_every_public_call_has_a_case_or_an_exception(self):
            self.run_here("missing", "")

    for group in groups:
        setattr(Tests, f"test_{group}", functools.partialmethod(Tests.run_here, group))
    return Tests
