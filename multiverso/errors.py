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
    "PeerError",
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


class PeerError(MultiversoError):
    """A call failed because of another rank: the base of what is raised then.

    Attributes
    ----------
    rank : int or None
        Which rank: that was lost, that is late, or that gave the session up; the first, if there
        are several. None if the error is about no rank in particular. What follows is None where it
        is not known.
    host : str or None
        The name of the host that the rank runs on.
    table : str or None
        The name of the table whose call failed here; None if that was no call of a table.
    last_call : str or None
        What the rank did last, and when, such as ``"add of table 'w' (400 bytes), 0.31 s ago"``.
        Known of ranks of this node.
    silent_for : float or None
        Seconds from the rank's last sign of life until this error. A living rank gives one every
        second, or more often with a short `peer_timeout`.
    last_checkpoint : str or None
        The path of the checkpoint that the session completed last.

    """

    rank: int | None = None
    host: str | None = None
    table: str | None = None
    last_call: str | None = None
    silent_for: float | None = None
    last_checkpoint: str | None = None


class OperationTimeout(PeerError, TimeoutError):  # noqa: N818 (as in TimeoutExpired)
    """A call passed its deadline. The message names the ranks that were waited for."""


class PeerLostError(PeerError, RuntimeError):
    """Another rank died or left. The message names it."""


class AbortedError(PeerError, RuntimeError):
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
