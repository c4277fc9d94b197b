"""The ranks' side of the harness: reports, announcements, stacks on demand; see tests/launch.py."""

import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

#: Seconds after which a rank stops waiting for an announcement.
WAIT_TIMEOUT = 100.0

#: The attributes of an error about another rank.
ERROR_ATTRIBUTES = ("rank", "host", "table", "last_call", "silent_for", "last_checkpoint")


def _number(default, *variables):
    return int(next((os.environ[name] for name in variables if name in os.environ), default))


# The last variables are torchrun's.
RANK = _number(0, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MULTIVERSO_RANK", "RANK")
SIZE = _number(1, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MULTIVERSO_SIZE", "WORLD_SIZE")

_reported = {}


def _folder():
    return Path(os.environ["MULTIVERSO_TEST_JOB"])


def begin():
    """Write this rank's process id for the harness, and print stacks on SIGUSR1."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # While a framework is imported, looking for garbage takes a sixth of the time.
    gc.set_threshold(100_000, 50, 50)
    _write(f"pid-{RANK}", str(os.getpid()))


def shield():
    """Continue as a child of the process that the launcher started. Call it before `begin`.

    A launcher that sees one of its processes die ends the others. The shield hides deaths from it
    until all ranks have ended.
    """
    child = os.fork()
    if child == 0:
        os.environ.pop("MULTIVERSO_RANK_OWNER", None)  # This process is the rank, not its parent.
        return
    os.waitpid(child, 0)
    meet("gone")
    os._exit(0)


def report(**values):
    """Add values to this rank's report, which the test can read however this rank ends."""
    _reported.update(values)
    _write(f"report-{RANK}.json", json.dumps(_reported))


def report_call(function, *arguments, name="error"):
    """Call a function and report the error that it raises as `name`: type and message, or None.

    If the error is about another rank, its attributes are reported as ``{name}_about``.
    """
    try:
        function(*arguments)
    except BaseException as error:
        report(**{name: [type(error).__name__, str(error)]})
        if hasattr(error, "last_call"):
            attributes = {attribute: getattr(error, attribute) for attribute in ERROR_ATTRIBUTES}
            report(**{f"{name}_about": attributes})
    else:
        report(**{name: None})


def announce(name):
    """Announce `name` to the test and the other ranks."""
    _write(f"{name}-{RANK}", "")


def wait_for(name, rank="test", timeout=WAIT_TIMEOUT):
    """Wait at most `timeout` seconds for an announcement of another rank or of the test."""
    path = _folder() / f"{name}-{rank}"
    _await(path.exists, f"{path.name} exists", timeout)


def wait_for_kill(timeout=WAIT_TIMEOUT):
    """Wait until a signal or a failpoint kills this process; the job fails if none does."""
    try:
        wait_for("a kill that does not happen", timeout=timeout)
    except TimeoutError:
        report(not_killed=True)
        raise


def _pid(rank):
    return int((_folder() / f"pid-{rank}").read_text("utf-8"))


def _states(rank):
    """Return the states of the threads of a rank, none if it has ended."""
    try:
        threads = list(Path(f"/proc/{_pid(rank)}/task").iterdir())
        stats = [(thread / "stat").read_text("ascii") for thread in threads]
    except (FileNotFoundError, ProcessLookupError):
        return set()
    # The state follows the name of the program, which is in parentheses.
    return {stat.rpartition(") ")[2][0] for stat in stats}


def _await(condition, what, timeout=WAIT_TIMEOUT):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {RANK} waited in vain until {what}")
        time.sleep(0.005)


def wait_until_suspended(rank):
    """Wait until all threads of another rank have stopped: they may run on for milliseconds."""
    _await(lambda: _states(rank) == {"T"}, f"rank {rank} is suspended")


def wait_until_gone(rank):
    """Wait until the process of another rank has ended."""
    _await(lambda: _states(rank) <= {"Z"}, f"rank {rank} has ended")


def suspend(rank):
    """Suspend another rank."""
    os.kill(_pid(rank), signal.SIGSTOP)
    wait_until_suspended(rank)


def resume(rank):
    """Let a rank continue that is suspended, unless it was killed meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(_pid(rank), signal.SIGCONT)


def is_announced(name, rank="test"):
    """Return whether another rank or the test has announced `name`."""
    return (_folder() / f"{name}-{rank}").exists()


def meet(name, timeout=WAIT_TIMEOUT):
    """Announce `name`, and wait until all ranks have announced it."""
    announce(name)
    for rank in range(SIZE):
        wait_for(name, rank, timeout)


def await_start():
    """Wait until all ranks have started, which is slow, so that a short timeout can follow."""
    import multiverso as mv

    mv.init(timeout=WAIT_TIMEOUT)
    mv.shutdown()


def wait_for_library_call():
    """Wait until the main thread waits inside a call of the library."""
    main_thread = threading.main_thread().ident
    # A call of the library has no frame, so the innermost frame is that of its caller.
    package = f"{Path(sys.modules['multiverso'].__file__).parent}{os.sep}"
    while not sys._current_frames()[main_thread].f_code.co_filename.startswith(package):
        time.sleep(0.01)
    time.sleep(0.5)  # until the library waits


def _write(name, text):
    path = _folder() / name
    unfinished = path.with_name(f".{name}")  # renamed, so that no reader sees part of a file
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)
