"""What a session does at SIGTERM: its ranks agree to leave, save, and end.

In an elastic session, a rank leaves alone when it receives the signal, and the last one saves.

A rank whose program fails after a notice (see `notice`) meets the others for the same save. They
may be in other calls: rounds go on without this rank, which has finished its own, and other
collective calls fail, so that these ranks come to the save by the same way (`after_failure`).
"""

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_int32, c_int64
from types import TracebackType
from typing import Any, Final

from multiverso._local.guard import TOLD_TO_END
from multiverso._native import arguments, capi
from multiverso._native.exception_text import describe
from multiverso._native.library import checked
from multiverso._native.places import is_address
from multiverso._native.reports import report_saved
from multiverso._session import notice
from multiverso._session.departure import Leaver
from multiverso._session.notice import LOST, EndOfJob
from multiverso._session.remote_saves import SAVES
from multiverso.errors import AbortedError, CheckpointIOError, MismatchError, MultiversoError

_log = logging.getLogger("multiverso")

#: Seconds between two looks for a notice.
_INTERVAL: Final = 0.05
_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]

#: The name of the companions that a session closes before it ends.
CLOSED_FIRST: Final = "closed first"


class _Former:
    """The hook for uncaught exceptions before that of this module."""

    hook: _Hook | None = None


_former: Final = _Former()


def listen(session: Leaver) -> None:
    """Let SIGTERM be a notice to a session from now on; see `notice.listen`."""
    notice.listen(session)
    if sys.excepthook is not _end_by_exception:
        _former.hook, sys.excepthook = sys.excepthook, _end_by_exception


def is_leaving(session: Leaver) -> bool:
    """Return whether the ranks of a session are to leave; see `multiverso.is_leaving`."""
    if session.options.on_term != "leave":
        return False
    was_told = notice.state.since is not None
    return was_told if session.options.elastic else bool(_outcome(session, was_told))


def _outcome(session: Leaver, was_told: bool) -> int:
    outcome = c_int32()
    checked.MV_SessionLeaving(session.handle, was_told, byref(outcome))
    return outcome.value


def check(session: Leaver, step: int | None, before: Callable[[], object] | None) -> None:
    """End this rank if it is to leave; see `multiverso.check_leaving`."""
    if step is not None:
        step = arguments.integer(step, "step", 0, bits=62)
    departure = session.departure
    departure.is_checked, departure.last_step, departure.before = True, step, before
    _check(session, before)


def check_after_sync(session: Leaver) -> None:
    """Do the same for an adapter, unless the program itself does."""
    if not session.departure.is_checked:
        _check(session, None)


def check_between_items(session: Leaver) -> None:
    """Do the same for `multiverso.Work`, with the last step of the program if there is one."""
    _check(session, None)


def _check(session: Leaver, before: Callable[[], object] | None) -> None:
    options = session.options
    if options.on_term != "leave" or session.closed:
        return
    # In sync mode nobody can ask alone: the others would wait in the next round.
    if not is_leaving(session) and options.mode != capi.MV_MODE_SYNC:
        return
    step = session.departure.last_step
    if not options.elastic:
        outcome, step = _agree(session, capi.MV_AT_STEP)
        if outcome != capi.MV_LEAVE_NOW:
            return
    notice.end_process(_leave(session, step, before))


def _agree(session: Leaver, when: int) -> tuple[int, int | None]:
    """Ask all ranks; return the outcome, and the smallest step of those that train."""
    last = session.departure.last_step
    step = c_int64(-1 if last is None else last)
    outcome = c_int32()
    try:
        checked.MV_SessionAgreeToLeave(session.handle, when, byref(step), byref(outcome))
    except BaseException:
        # An exception has waited for the end of the call. The other ranks leave now.
        if outcome.value != capi.MV_LEAVE_NOW:
            raise
    return outcome.value, None if step.value < 0 else step.value


def _leave(
    session: Leaver,
    step: int | None,
    before: Callable[[], object] | None,
    makes_last_calls: bool = True,
) -> int:
    """Save and end the session with all ranks, or an elastic one alone; return the exit code."""
    code = 0
    with _saving(session):
        if makes_last_calls:
            session.departure.make_last_calls()
        if before is not None:
            before()
        if not session.options.elastic or _is_last(session):
            code = TOLD_TO_END if _save(session, step, before) else LOST
        notice.state.code = code
        if session.options.elastic:
            session.leave()
        else:
            session.close()
    return code


def _is_last(session: Leaver) -> bool:
    """Say that this worker of an elastic session leaves; return whether it is the last one."""
    checked.MV_SessionFlush(session.handle, -1.0)
    return _outcome(session, True) == capi.MV_LEAVE_LAST


@contextlib.contextmanager
def _saving(session: Leaver) -> Iterator[None]:
    """Let neither SIGTERM nor the end of a child process end the block by an exception."""
    notice.state.phase = "saves"
    restore = contextlib.ExitStack()
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD"):
        # A handler may raise an exception when a process ends, as that of PyTorch does.
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        restore.callback(signal.signal, signal.SIGCHLD, handler or signal.SIG_DFL)
    try:
        yield
    except AbortedError:  # Another rank has failed at this moment; the ranks meet again.
        raise
    except BaseException:
        session.departure.has_failed = True
        raise
    finally:
        notice.state.phase = ""
        restore.close()


def _save(session: Leaver, step: int | None, before: object) -> bool:
    """Save the tables; return whether this, or `before`, has saved anything."""
    folder = session.options.checkpoints
    if folder is not None:
        try:
            session.wait_for_save()
        except (CheckpointIOError, MismatchError) as error:
            # All ranks get one of these. Its reason, such as a full disk, may be over.
            _log.error("an earlier save has failed, and another follows: %s", describe(error))
        session.save(folder, step, None, background=False, incremental=False)
        if is_address(folder):
            session.wait_for_save()
    if session.options.elastic or session.is_master_worker():
        lost = "lost: mv.init had no checkpoints=" if before is None else "left to before="
        saved = f"saved in {folder}" if folder is not None else lost
        _log.warning("the job ends because of SIGTERM; its tables are %s", saved)
    notice.state.has_saved = folder is not None or before is not None
    if notice.state.has_saved:
        report_saved()
    return notice.state.has_saved


def may_save(session: Leaver | None, error: BaseException | None) -> bool:
    """Return whether a notice may have ended the program, whose tables are saved or can be."""
    if isinstance(error, KeyboardInterrupt | EndOfJob):
        return False
    if session is None or session.closed:
        return notice.state.code not in (None, LOST)
    departure, options = session.departure, session.options
    if notice.state.session is None or session.forked or departure.has_failed:
        return False
    return (options.checkpoints is not None or departure.before is not None) and _await_notice(
        session
    )


def after_failure(session: Leaver | None, error: BaseException | None) -> EndOfJob | None:
    """Save with all ranks if the program failed after a notice; return how to end, or None."""
    if not may_save(session, error):
        return None
    if session is not None and not session.closed:
        try:
            _leave_after_failure(session)
        except Exception as failure:
            _log.error("after SIGTERM, the tables could not be saved: %s", describe(failure))
            return None
    return None if notice.state.code in (None, LOST) else notice.end_with(notice.state.code)


def after_exit(session: Leaver, error: BaseException | None) -> bool:
    """Do the same while the interpreter exits, if the tables still exist; return whether it has."""
    return bool(notice.state.tables) and after_failure(session, error) is not None


def _await_notice(session: Leaver) -> bool:
    """Return whether there is a notice, or one follows that has already reached a child."""
    deadline = time.monotonic() + notice.FOLLOWING_NOTICE
    while not is_leaving(session):
        if time.monotonic() > deadline:
            return False
        time.sleep(_INTERVAL)
    return True


def _leave_after_failure(session: Leaver) -> int:
    departure = session.departure
    if notice.state.since is None:  # Another rank has received the signal.
        notice.begin()
    notice.state.phase = "meets"
    step = departure.last_step
    has_rounds = session.options.mode == capi.MV_MODE_SYNC
    try:
        is_leaving(session)  # The others get to know of the notice.
        if has_rounds:  # Others may wait in one.
            checked.MV_SessionFinish(session.handle)
        outcome = capi.MV_LEAVE_OTHER_CALL
        while not session.options.elastic and outcome != capi.MV_LEAVE_NOW:
            outcome, step = _agree(session, capi.MV_AT_FAILURE)
        return _leave(session, step, departure.before, makes_last_calls=not has_rounds)
    finally:
        notice.state.phase = ""


def close(session: Leaver) -> None:
    """Close a session with all ranks, and save before with those that leave it meanwhile."""
    with contextlib.ExitStack() as companions:  # One that fails does not keep others from closing.
        for name in (CLOSED_FIRST, SAVES):
            for companion in session.companions.get(name, []):
                companions.callback(companion.close)
    failure: MultiversoError | None = None
    if session.options.on_term == "leave" and notice.state.code is None:
        # The program may make the call in a `finally` block, after an exception.
        in_flight = sys.exc_info()[1]
        if in_flight is not None and after_failure(session, in_flight) is not None:
            return
        try:
            if session.options.elastic:
                save_if_last(session)
            else:
                _await_close(session)
        except MultiversoError as error:
            failure = error
    checked.MV_SessionClose(session.handle)
    # The close of a session that is known to be aborted waits for nobody, and succeeds.
    if failure is not None and not isinstance(failure, AbortedError):
        raise failure


def save_if_last(session: Leaver) -> None:
    """Save after a notice, before the last worker of an elastic session ends by itself."""
    if notice.state.code is None and is_leaving(session) and _is_last(session):
        with _saving(session):
            _save(session, session.departure.last_step, None)


def _await_close(session: Leaver) -> None:
    while True:
        is_leaving(session)  # The others get to know of a notice that this rank has received.
        outcome, step = _agree(session, capi.MV_AT_CLOSE)
        if outcome == capi.MV_LEAVE_NOW:
            with _saving(session):
                _save(session, step, None)
        if outcome != capi.MV_LEAVE_NOT_NOW:
            return


def program_hook() -> _Hook:
    """Return the hook for uncaught exceptions of the program, without that of this module."""
    hook = sys.excepthook if sys.excepthook is not _end_by_exception else _former.hook
    return hook or sys.__excepthook__


def _end_by_exception(
    kind: type[BaseException], error: BaseException, frames: TracebackType | None
) -> None:
    """Print an exception that ends the program, and save if a notice has caused its end."""
    program_hook()(kind, error, frames)
    end = after_failure(notice.state.session, error)
    if end is not None:
        raise end
