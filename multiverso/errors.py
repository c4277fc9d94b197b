"""What Multiverso raises.

Wrong arguments raise the built-in `ValueError`, `TypeError`, `IndexError` and `MemoryError`, as
NumPy does. Everything that has to do with the session, the other ranks or the machine is a
`MultiversoError`, and also the built-in exception that comes closest, so that code which knows
nothing about Multiverso can still handle it (``except TimeoutError``).
"""

__all__ = [
    "AbortedError",
    "ForkedError",
    "InternalError",
    "LauncherError",
    "MismatchError",
    "MultiversoError",
    "OperationTimeout",
    "PeerLostError",
    "StateError",
    "TransportError",
    "UnsupportedError",
]


class MultiversoError(Exception):
    """Base class of all errors of Multiverso.

    Attributes
    ----------
    status : int or None
        The ``MV_ERR_`` code of the C API, or None where the Python layer found the error.

    """

    status: int | None = None


class StateError(MultiversoError, RuntimeError):
    """The call does not fit the state of the session or the role of this rank."""


class ForkedError(StateError):
    """The process is a fork of one that had a session; a session cannot be used from both."""


class MismatchError(MultiversoError, RuntimeError):
    """The ranks did not make the same call. The message names both sides."""


class OperationTimeout(MultiversoError, TimeoutError):  # noqa: N818 (as in TimeoutExpired)
    """A call passed its deadline. The message names the ranks that were waited for."""


class PeerLostError(MultiversoError, RuntimeError):
    """Another rank died or left. The message names it."""


class AbortedError(MultiversoError, RuntimeError):
    """Another rank gave the session up. The message names it and its reason."""


class TransportError(MultiversoError, RuntimeError):
    """MPI reported an error."""


class LauncherError(MultiversoError, ImportError):
    """No MPI, two MPIs, or the launcher of another MPI. The message says what to install or set."""


class UnsupportedError(MultiversoError, NotImplementedError):
    """Not possible in this build or on this machine. The message says what is."""


class InternalError(MultiversoError, RuntimeError):
    """A bug in Multiverso."""
