"""The exceptions of Multiverso.

Invalid arguments raise the built-in `ValueError`, `TypeError` and `IndexError`, and a lack of
memory raises `MemoryError`, as in NumPy. Errors of the session, of other ranks, of MPI and of files
raise a `MultiversoError`. Each error is also an instance of the closest built-in exception, so that
code without knowledge of Multiverso can handle the error (``except TimeoutError``).
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
    "PublicationError",
    "RankError",
    "StateError",
    "TransportError",
    "UnsupportedError",
]


class MultiversoError(Exception):
    """Base class of all errors of Multiverso.

    Attributes
    ----------
    status : int or None
        The ``MV_ERR_`` code of the C API, or None if the Python layer found the error.

    Examples
    --------
    >>> import multiverso as mv
    >>> try:
    ...     mv.barrier()
    ... except mv.MultiversoError as error:
    ...     print(type(error).__name__, isinstance(error, RuntimeError))
    StateError True

    """

    status: int | None = None

    def __str__(self) -> str:
        """Return the message, and where the documentation says more about this kind of error."""
        message = str(self.args[0]) if self.args else ""
        return f"{message}\n{self.advice}"

    @property
    def advice(self) -> str:
        """The last line of the message: the command that says what to do."""
        known = (kind.__name__ for kind in type(self).__mro__ if kind.__module__ == __name__)
        return f"What to do: multiverso explain {next(known)}"


class StateError(MultiversoError, RuntimeError):
    """The call is not allowed in this state of the session or for the role of this rank.

    Examples
    --------
    >>> import multiverso as mv
    >>> try:
    ...     mv.rank()
    ... except mv.errors.StateError as error:
    ...     print(str(error).splitlines()[-1])
    What to do: multiverso explain StateError

    """


class ForkedError(StateError):
    """The process was forked from one with an open session, which only the parent can use.

    Examples
    --------
    >>> import os
    >>> import multiverso as mv
    >>> with mv.session():
    ...     child = os.fork()
    ...     if child == 0:
    ...         try:
    ...             mv.rank()
    ...         except mv.errors.ForkedError:
    ...             os._exit(3)
    ...     os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    3

    """


class MismatchError(MultiversoError, RuntimeError):
    """The ranks did not make the same call. The message describes both calls.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, name="w")
    ...     mv.save(folder)
    ...     other = mv.ArrayTable(3, name="another")
    ...     try:
    ...         mv.load(folder)
    ...     except mv.errors.MismatchError:
    ...         print("the tables differ from those in the checkpoint")
    the tables differ from those in the checkpoint

    """


class PeerError(MultiversoError):
    """Base class of errors that another rank caused.

    Attributes that are unknown are None.

    Attributes
    ----------
    rank : int or None
        The first rank that was lost, is late, or aborted the session.
    host : str or None
        The name of the host of that rank.
    table : str or None
        The name of the table whose call failed on this rank.
    last_call : str or None
        The last call of that rank, such as ``"add of table 'w' (400 bytes), 0.310 s ago"``. Only
        calls of ranks of this node are known.
    silent_for : float or None
        Seconds from the last heartbeat of that rank until this error. An alive rank sends one every
        second, or more often with a short `peer_timeout`.
    last_checkpoint : str or None
        The path of the last checkpoint that the session completed.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     try:
    ...         mv.barrier()
    ...     except mv.errors.PeerError as error:
    ...         print("because of rank", error.rank, error.last_call)
    ...         print("resume from", error.last_checkpoint)

    """

    rank: int | None = None
    host: str | None = None
    table: str | None = None
    last_call: str | None = None
    silent_for: float | None = None
    last_checkpoint: str | None = None


class OperationTimeout(PeerError, TimeoutError):  # noqa: N818 (as in TimeoutExpired)
    """A call exceeded its deadline. The message names the ranks that did not answer."""


class PeerLostError(PeerError, RuntimeError):
    """Another rank was lost. The message names the rank."""


class AbortedError(PeerError, RuntimeError):
    """Another rank aborted the session. The message names the rank and its reason."""


class TransportError(MultiversoError, RuntimeError):
    """MPI reported an error."""


class LauncherError(MultiversoError, ImportError):
    """The process found no MPI, two MPIs, or a launcher of another MPI. The message has advice.

    Examples
    --------
    >>> import multiverso as mv
    >>> try:
    ...     session = mv.init()
    ... except mv.errors.LauncherError as error:
    ...     raise SystemExit(f"wrong launcher: {error}")
    >>> mv.shutdown()

    """


class RankError(MultiversoError, RuntimeError):
    """A rank that `multiverso.spawn` started failed. The message has its traceback.

    Attributes
    ----------
    rank : int
        The rank.

    Examples
    --------
    >>> import multiverso as mv
    >>> def fail():
    ...     raise ValueError("no data")
    >>> try:
    ...     mv.spawn(fail, 1, method="fork")
    ... except mv.errors.RankError as error:
    ...     print("no data" in str(error))
    True

    """

    def __init__(self, message: str, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class UnsupportedError(MultiversoError, NotImplementedError):
    """The build or the machine does not support the call. The message lists what is supported.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session(sync=True):
    ...     try:
    ...         mv.HashTable(2, 100, updater="sgd", evict="lru")
    ...     except (mv.errors.UnsupportedError, ValueError):
    ...         print("evictions depend on the order of calls")
    evictions depend on the order of calls

    """


class CheckpointIOError(MultiversoError, OSError):
    """A file of a checkpoint, or of a publication, could not be written or read.

    Attributes
    ----------
    errno : int or None
        The reason, as in `OSError`.
    path : str or None
        The path of the file, which is also the attribute ``filename``.
    bytes_written : int
        The number of bytes that had been written to the file.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     try:
    ...         mv.load("/nowhere")
    ...     except mv.errors.CheckpointIOError as error:
    ...         print(error.path)
    /nowhere

    """

    path: str | None = None
    bytes_written: int = 0

    def set_file(self, path: str, position: int, error_number: int) -> None:
        """Store the report of the library about the file."""
        self.path = self.filename = path
        self.bytes_written = position
        self.errno = error_number or None


class CheckpointCorruptError(MultiversoError, ValueError):
    """A file of a checkpoint is not as it was saved. No table has changed.

    Attributes
    ----------
    path : str or None
        The path of the file.
    offset : int or None
        The byte in the file at which the damage was detected.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, name="w")
    ...     mv.save(folder)
    ...     file = next(pathlib.Path(folder).glob("*/shard*"))
    ...     damaged = file.write_bytes(file.read_bytes()[:-1])
    ...     try:
    ...         mv.load(folder)
    ...     except mv.errors.CheckpointCorruptError as error:
    ...         print(pathlib.Path(error.path) == file)
    True

    """

    path: str | None = None
    offset: int | None = None

    def set_file(self, path: str, position: int, error_number: int) -> None:
        """Store the report of the library about the file."""
        self.path = path
        self.offset = position


class PublicationError(MultiversoError, ValueError):
    """A file of a followed folder is missing, damaged, or from somewhere else.

    The view still has the last version that was complete.

    Attributes
    ----------
    path : str or None
        The path of the file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     damaged = pathlib.Path(folder, "latest.json").write_text("?")
    ...     try:
    ...         mv.follow(folder)
    ...     except mv.errors.PublicationError as error:
    ...         print(pathlib.Path(error.path).name)
    latest.json

    """

    path: str | None = None


class InternalError(MultiversoError, RuntimeError):
    """Multiverso has a bug."""
