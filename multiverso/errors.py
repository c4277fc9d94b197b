"""What Multiverso raises.

Wrong arguments raise the built-in `ValueError`, `TypeError`, `IndexError` and `MemoryError`, as
NumPy does. Everything that has to do with the session, the other ranks or the machine is a
`MultiversoError`, and also the built-in exception that comes closest, so that code which knows
nothing about Multiverso can still handle it (``except TimeoutError``).
"""

__all__ = [
    "AbortedError",
    "CheckpointCorruptError",
    "CheckpointIOError",
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


class CheckpointIOError(MultiversoError, OSError):
    """A file of a checkpoint could not be written or read.

    Attributes
    ----------
    errno : int or None
        Why, as in `OSError`.
    path : str or None
        Which file; also as ``filename``.
    bytes_written : int
        How much of the file had been written before.

    """

    path: str | None = None
    bytes_written: int = 0

    def set_file(self, path: str, position: int, error_number: int) -> None:
        """Note what the library says about the file."""
        self.path = self.filename = path
        self.bytes_written = position
        self.errno = error_number or None

    def __str__(self) -> str:
        """Return the message, which names file and reason."""
        return str(self.args[0]) if self.args else ""


class CheckpointCorruptError(MultiversoError, ValueError):
    """A file of a checkpoint is not what was written. Nothing has been loaded.

    Attributes
    ----------
    path : str or None
        Which file.
    offset : int or None
        The byte in it where the fault was seen.

    """

    path: str | None = None
    offset: int | None = None

    def set_file(self, path: str, position: int, error_number: int) -> None:
        """Note what the library says about the file."""
        self.path = path
        self.offset = position


class InternalError(MultiversoError, RuntimeError):
    """A bug in Multiverso."""
