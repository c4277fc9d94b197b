"""The session of this process, which has at most one that is open."""

import atexit
import os
import threading
from typing import Final

from multiverso._mpi.communicator import meeting
from multiverso._native.exception_text import describe, uncaught_exception
from multiverso._session import leaving
from multiverso._session.options import SessionOptions
from multiverso._session.session import Session
from multiverso.errors import ForkedError, StateError


class _ProcessState:
    """The last session of this process, and the lock under which a session is opened."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.session: Session | None = None


_process: Final = _ProcessState()


def current() -> Session:
    """Return the open session; raise StateError if none is open, ForkedError in a forked child."""
    session = _process.session
    if session is None or session.closed:
        closed = "" if session is None else "the session has been shut down; "
        msg = f"{closed}expected an open session: make the call inside `with mv.session():`"
        raise StateError(msg)
    if session.forked:
        raise _forked_error()
    return session


def find() -> Session | None:
    """Return the open session that this process can use, or None."""
    session = _process.session
    return None if session is None or session.closed or session.forked else session


def is_open() -> bool:
    """Return whether a session is open, also in a forked child, which cannot use the session."""
    session = _process.session
    return session is not None and not session.closed


def open_session(options: SessionOptions) -> Session:
    """Return the open session, or open one."""
    with _process.lock:
        session = _process.session
        if session is not None and not session.closed:
            if session.forked:
                raise _forked_error()
            if session.options != options:
                raise StateError(_differences(session.options, options))
            return session
        former, opened = session, Session(options)
        _process.session = opened  # Before it is open, so that nothing that is open is forgotten.
        try:
            with meeting(options.start_timeout):
                opened._open()
            _leave_last()
        except BaseException as error:
            opened._abandon(error)
            _process.session = former
            raise
        return opened


def _leave_last() -> None:
    """Let the session be left at the exit of the interpreter, if it is still open then."""
    # The function registered last runs first. This one must run before MPI_Finalize, which the
    # opening may have registered, and which would wait for the other ranks.
    atexit.unregister(_leave_at_exit)
    atexit.register(_leave_at_exit)


def _differences(opened: SessionOptions, given: SessionOptions) -> str:
    """Return a message with the arguments of `multiverso.init` that differ."""
    names = [name for name, value in opened.arguments().items() if value != given.arguments()[name]]
    expected, received = (
        ", ".join(f"{name}={options.arguments()[name]!r}" for name in names)
        for options in (opened, given)
    )
    return (
        f"a session with other options is open: expected {expected}, received {received}; call "
        f"mv.shutdown() first, or use the open session with multiverso.api.current_session()"
    )


def _forked_error() -> ForkedError:
    msg = (
        "this process was forked from one with an open session, which only the parent can use; "
        "start it with the 'spawn' method, or fork it before mv.init()"
    )
    return ForkedError(msg)


def _leave_at_exit() -> None:
    session = find()
    if session is None:
        return
    error = uncaught_exception()
    if leaving.after_exit(session, error):
        return
    reason = "its script ended without mv.shutdown()"
    session.leave_with(f"{reason}: {describe(error)}" if error is not None else reason)


def _mark_forked() -> None:
    """Mark the session in a forked child; replace the lock, which might stay locked forever."""
    _process.lock = threading.RLock()
    if _process.session is not None:
        _process.session.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
