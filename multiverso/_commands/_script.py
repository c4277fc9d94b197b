"""Runs a script for ``python -m multiverso SCRIPT``: the first rank that fails ends the whole job.

``python -m multiverso -m MODULE`` does the same with a module.

With a plain ``python SCRIPT`` the other ranks would continue until they wait for the failed rank.
Here the failed rank prints its traceback, tells the other ranks its reason, and ends the job with
its exit code, like ``python -m mpi4py``.
"""

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from multiverso import _session
from multiverso._extras import EXIT_CODE, MissingExtraError, has_module, has_plain_hook
from multiverso._mpi import communicator
from multiverso._native.exception_text import describe
from multiverso._native.reports import loss, report_failure
from multiverso._session import leaving, notice
from multiverso._session.notice import EndOfJob

#: The exit code of Python after an exception.
_FAILED: Final = 1
#: The exit code of a command after wrong arguments.
_WRONG_ARGUMENTS: Final = 2
#: The exit code that shells report after Ctrl-C.
_INTERRUPTED: Final = 130
#: Files whose frames are left out at the start of the traceback, as they do not concern the user.
_RUNNER_FILES: Final = (__file__, runpy.run_path.__code__.co_filename, "<frozen runpy>")


def run(arguments: Sequence[str]) -> int:
    """Run a script or ``-m MODULE`` as the main program; return its exit code, or end the job."""
    is_module = arguments[0] == "-m"
    sys.argv[:] = arguments[is_module:]
    program = sys.argv[0]
    # As with Python's own command, the first folder on the path is that of the script, or this one.
    sys.path[0] = str(Path.cwd() if is_module else Path(program).resolve().parent)
    if not (has_module(program) if is_module else Path(program).is_file()):
        sys.stderr.write(f"multiverso: {program}: no such {'module' if is_module else 'file'}\n")
        return _WRONG_ARGUMENTS
    try:
        if is_module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        return _end_job(_exit_code(error), error)
    except KeyboardInterrupt as error:
        return _end_job(_INTERRUPTED, error)
    except BaseException as error:
        return _end_job(_FAILED, error)
    return 0


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF  # as the system cuts exit codes
    return _FAILED


def _end_job(code: int, error: BaseException) -> int:
    """End the job if the code is not 0, with Python's message from the first rank that fails."""
    if isinstance(error, MissingExtraError):
        code = EXIT_CODE
    frames = _frames_of_script(error.__traceback__)
    text = "" if isinstance(error, SystemExit) else _text(error, frames)
    session = _session.find()
    # If a notice has caused the failure, and the ranks can save, the job has not failed.
    may_save = leaving.may_save(session, error)
    prints = (
        isinstance(error, EndOfJob) or not code or may_save or report_failure(code, error, text)
    )
    if not isinstance(error, SystemExit):
        hook = leaving.program_hook()
        try:
            if not has_plain_hook(hook):
                hook(type(error), error.with_traceback(frames), frames)
            elif prints:
                # Python writes a traceback in pieces, which those of other ranks would separate.
                sys.stderr.write(text)
        except SystemExit as end:  # As in Python, a hook can choose the exit code.
            code = _exit_code(end)
    elif error.code is not None and not isinstance(error.code, int):
        sys.stderr.write(f"{error.code}\n")
    # After the end of the job by SIGTERM, the other ranks end by themselves.
    if isinstance(error, EndOfJob):
        notice.note_end()
    if code == 0 or isinstance(error, EndOfJob):
        return code
    if may_save:
        left = leaving.after_failure(session, error)
        if left is not None:
            notice.note_end()
            return _exit_code(left)
        report_failure(code, error, text)
    if session is not None and not session.closed:
        session.leave_with(f"its script ended: {describe(error)}")
    communicator.abort(code, is_consequence=loss() is not None)
    return code


def _text(error: BaseException, frames: TracebackType | None) -> str:
    if isinstance(error, MissingExtraError):
        return f"{error}\n"
    return "".join(traceback.format_exception(type(error), error, frames))


def _frames_of_script(frames: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the script, or all if there is no such part."""
    part = frames
    while part is not None and part.tb_frame.f_code.co_filename in _RUNNER_FILES:
        part = part.tb_next
    return part or frames
