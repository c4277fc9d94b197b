"""The session of this process: opening, options, membership, and the start of ranks by `spawn`."""

from multiverso._session.process import current, find, is_open, open_session
from multiverso._session.session import Session

__all__ = ["Session", "current", "find", "is_open", "open_session"]
