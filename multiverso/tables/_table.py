"""The base class of all tables: their creation, options and checkpoints."""

import functools
import inspect
import logging
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from ctypes import byref, c_int32, sizeof
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from multiverso import _session
from multiverso._native import arrays, capi, checkpoint_calls, supported
from multiverso._native.arguments import choice, integer, name as naming
from multiverso._native.dtypes import table_dtype
from multiverso._native.exception_text import name_of_file
from multiverso._native.hints import Hint
from multiverso._native.library import checked
from multiverso._native.places import StrPath
from multiverso._session.options import SessionOptions
from multiverso.initializers import Initializer
from multiverso.tables._background import BackgroundCalls, Future
from multiverso.tables._on_disk import OnDisk
from multiverso.tables._options import DEFAULTS
from multiverso.tables._updaters import OPTIONAL, UPDATERS, hyper_values, set_updater

_log = logging.getLogger("multiverso")

#: The folder of the package, with a separator at its end.
_PACKAGE: Final = str(Path(__file__).parents[1] / "_")[:-1]

#: The flags of a collective get.
COLLECTIVE: Final = c_int32(capi.MV_COLLECTIVE)
_run: Final = checked.MV_TableRun
_NUMA: Final = {"interleave": capi.MV_NUMA_INTERLEAVE}
_WIRE: Final = {
    "float32": capi.MV_WIRE_FLOAT32,
    "bfloat16": capi.MV_WIRE_BFLOAT16,
    "int8": capi.MV_WIRE_INT8,
}


class Table(OnDisk):
    """Parameters that every rank of the session shares.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     isinstance(mv.ArrayTable(2), mv.tables.Table)
    True

    """

    __slots__ = (
        "__weakref__",
        "_background",
        "_dtype",  # of deltas and results
        "_handle",
        "_initializer",
        "_name",
        "_program_rate",  # The last learning rate that the program has given.
        "_requires_finite",
        "_stored_dtype",
        "_updater",
    )

    _kind: ClassVar[int]  # MV_TABLE_ARRAY, ...
    #: Whether `wire` is also for calls outside rounds: for deltas, and for what `add_get` returns.
    _encodes_calls: ClassVar[bool] = False

    def __init__(
        self,
        configure: Callable[[capi.MV_TableOptions], NDArray[Any] | None],
        given: Mapping[str, Any],
    ) -> None:
        """Create the table together with all ranks, with what the program has given of the options.

        `configure` sets the size and returns the initial values, or raises if they are invalid.
        """
        session = _session.current()
        self._initializer: Initializer | None = None
        raw = capi.MV_TableOptions()
        checked.MV_TableOptionsInit(byref(raw))
        raw.kind = self._kind
        try:
            self._set(raw, given, session.options)
            initial = configure(raw)
        except Exception:
            _create_invalid(session, raw)
            raise
        if initial is not None:
            raw.init_value = arrays.address(initial)
        # The end of the handle frees the table; once the session has done so, it has no effect.
        self._handle = capi.MV_Table()
        self._background = BackgroundCalls(self._handle)
        # A rank that joins an elastic session creates the same tables as the others have, in the
        # same order, so each table is kept until the end of the session.
        if session.options.elastic:
            session.companions.setdefault(__name__, []).append(self._handle)
        checked.MV_TableCreate(session.handle, byref(raw), byref(self._handle))
        number = self._description().id
        self._name = given.get("name") or f"table {number}"
        self._note_creation(session, number)

    def _set(
        self, raw: capi.MV_TableOptions, given: Mapping[str, Any], session: SessionOptions
    ) -> None:
        """Set the library's options, and this object's, to what the program has given."""
        own = {name: given.get(name, default) for name, default in DEFAULTS.items()}
        of_updater = {name: value for name, value in given.items() if name not in own}
        raw.name = None if own["name"] is None else naming(own["name"]).encode()
        arguments = _arguments_of(type(self))  # type: ignore[arg-type]  # a type has a hash
        self._updater = set_updater(raw, own["updater"], of_updater, arguments)
        raw.dtype, self._stored_dtype, self._dtype = table_dtype(own["dtype"])
        self._program_rate = float(raw.hyper[capi.MV_HYPER_LEARNING_RATE])
        self._requires_finite = session.requires_finite and self._dtype.kind == "f"
        most = own["max_bytes"]
        raw.max_bytes = 0 if most is None else integer(most, "max_bytes", 1)
        raw.backing = self._begin_on_disk(own["backing"])
        if own["numa"] is not None:
            raw.numa = _NUMA[choice(own["numa"], "numa", _NUMA)]
        if own["wire"] is not None:
            self._set_wire(raw, own["wire"], session.mode_name)

    def _set_wire(self, raw: capi.MV_TableOptions, wire: object, mode: str) -> None:
        raw.wire = _WIRE[choice(wire, "wire", _WIRE)]
        if raw.wire and not self._encodes_calls:
            kind = ("wire", "keys") if self._kind == capi.MV_TABLE_HASH else ()
            supported.check("wire of calls", mode, *kind)

    def _note_creation(self, session: _session.Session, number: int) -> None:
        """Warn if a checkpoint could give this table the values of another one of the session.

        Tables of one name that differ in their dtypes cannot be confused: `ParamSync` makes them.
        """
        stacklevel, site = _caller()
        created, all_sites = session.created, session.sites
        key = self._name, self._stored_dtype
        sites = all_sites.setdefault(key, {})
        # At any line, Python may collect garbage with a table that is then forgotten.
        earlier = tuple(sites.values())
        if earlier:
            msg = (
                f"two tables of this session have the name {self._name!r}: one was created at "
                f"{earlier[-1]}, the other one at {site}. A load tells them "
                "apart only by the order in which they are created, so give each table its own name"
            )
            warnings.warn(msg, RuntimeWarning, stacklevel=stacklevel)

        def forget(_: object) -> None:
            created.pop(number, None)
            sites.pop(number, None)
            if not sites:
                all_sites.pop(key, None)

        created[number] = weakref.ref(self, forget)
        # After `created`, so that a table whose creation is interrupted is forgotten.
        sites[number] = site
        all_sites[key] = sites

    @property
    def name(self) -> str:
        """The name of the table in messages and checkpoints."""
        return self._name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype in which the parameters are stored."""
        return self._stored_dtype

    @property
    def value_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of deltas and results: float32 if the parameters have 16 bits."""
        return self._dtype

    @property
    def initializer(self) -> Initializer | None:
        """What computes the initial values of a row; None if they came from an array."""
        return self._initializer

    @property
    def updater(self) -> str:
        """The name of the updater, which applies the deltas."""
        return self._updater

    @property
    def options(self) -> dict[str, float]:
        """The current options of the updater, which are the same for all ranks.

        ``weight_decay``, ``clipnorm``, ``clipvalue`` and ``outer_epsilon`` are left out while they
        are 0 and have no effect.
        """
        hyper = self._description().hyper
        indices = UPDATERS[self._updater][1]
        values = {name: hyper[index] for name, index in indices.items()}
        return {name: value for name, value in values.items() if value or name not in OPTIONAL}

    def set_option(self, **options: float) -> None:
        """Change options of the updater, such as ``learning_rate``, for all ranks.

        The new values apply to the next add on any rank; an invalid value leaves all options
        unchanged. The call waits only until the servers of other nodes have stored the values. A
        concurrent add of another worker may see only some of several new values.

        Parameters
        ----------
        **options : float
            New values by name.

        Raises
        ------
        TypeError, ValueError
            If the updater has no such option, or a value is not a finite number in its range.
        StateError, OperationTimeout, PeerLostError
            If the session has been shut down, or a server of another node does not answer.

        """
        values = hyper_values(self._updater, options)
        for index, value in values.items():
            checked.MV_TableCheckHyper(self._handle, index, value)
        for index, value in values.items():
            checked.MV_TableSetHyper(self._handle, index, value)
        self._program_rate = values.get(capi.MV_HYPER_LEARNING_RATE, self._program_rate)

    def _set_scheduled_rate(self, rate: float) -> None:
        """Set the learning rate as a schedule does, which is based on the program's own rate."""
        given = self._program_rate
        self.set_option(learning_rate=rate)
        self._program_rate = given

    def save(self, directory: StrPath, *, step: int | None = None, keep: int | None = None) -> None:
        """Save only this table. Collective over all ranks.

        Parameters and errors are those of `multiverso.save`; the save is never in the background
        or incremental. The checkpoint can also be loaded into a table of another name.
        """
        raw = checkpoint_calls.save_options(directory, step, keep)
        checked.MV_TableSave(self._handle, byref(raw))

    def load(self, directory: StrPath, *, missing_ok: bool = False) -> int | None:
        """Load only this table. Collective over all ranks.

        Parameters, result and errors are those of `multiverso.load`. From a checkpoint of several
        tables, the one with the name of this table is loaded; the only table may have any name.
        """
        step: int | None = checkpoint_calls.load(
            checked.MV_TableLoad, self._handle, directory, missing_ok, call="table.load"
        )
        self.set_option(**_session.current().fixed_options.get(self, {}))
        return step

    def _description(self) -> capi.MV_TableDescription:
        raw = capi.MV_TableDescription(struct_size=sizeof(capi.MV_TableDescription))
        checked.MV_TableDescribe(self._handle, byref(raw))
        return raw

    def flush(self, timeout: float | None = None) -> None:
        """Wait until this worker's background calls on the table have ended.

        Every other call on the table waits for them, too. The collective calls of the session, such
        as `multiverso.barrier`, do the same for all tables.

        Parameters
        ----------
        timeout : float, optional
            The longest wait in seconds; by default the session's timeout.

        Raises
        ------
        Exception
            The error of the first background call that has failed, unless `Future.wait` or
            `Future.result` of that call, or an earlier flush, has raised it.
        OperationTimeout
            If the calls do not end in time.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.ArrayTable(2)
        ...     added = table.add_async([1, 2])
        ...     table.flush()
        ...     added.done()
        True

        """
        self._background.flush(timeout)

    def _read(
        self,
        operation: bytes,
        ids: NDArray[np.int64] | None,
        shape: tuple[int, ...],
        out: Any,
        flags: Any,
    ) -> Any:
        """Run a get; with the flag MV_PEEK it takes part in no round."""
        if out is None:
            out = np.empty(shape, self._dtype)
        buffer, target = self._output(out, shape)
        if ids is not None and np.may_share_memory(ids, buffer):
            ids = ids.copy()  # The library reads `ids` while it writes to `buffer`.
        count, keys = (0, None) if ids is None else (len(ids), arrays.pointer(ids))
        sink = arrays.pin(buffer)
        _run(self._handle, operation, keys, count, None, sink, buffer.size, flags)
        arrays.copy_out(buffer, target)
        return out

    def _read_in_background(
        self,
        operation: bytes,
        ids: NDArray[np.int64] | None,
        shape: tuple[int, ...],
        out: Any,
        finisher: Callable[..., Callable[[], None]] | None = None,
    ) -> Future[Any]:
        """Begin a get; `finisher` makes what reads changed rows again when the result is used."""
        if out is None:
            out = np.empty(shape, self._dtype)
        buffer, target = self._output(out, shape)
        finish: Callable[[], None] | None = None
        if buffer is not target:
            finish = functools.partial(arrays.copy_out, buffer, target)
        if finisher is not None:
            finish = finisher(ids, out, finish=finish)
        return self._background.start(operation, ids, None, buffer, out, finish)

    def _write(self, operation: bytes, ids: NDArray[np.int64], delta: NDArray[Any]) -> None:
        """Run an add."""
        keys, source = arrays.pointer(ids), arrays.pointer(delta)
        _run(self._handle, operation, keys, len(ids), source, None, delta.size, 0)

    def _output(self, out: Any, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return a buffer for results and the user's array, as `arrays.as_output` does."""
        return arrays.as_output(out, self._dtype, shape, also=self._stored_dtype)

    def _delta_of(
        self, data: Any, shapes: tuple[tuple[int, ...], ...], what: str = "data"
    ) -> NDArray[Any]:
        """Return `data` as an array that the library can add; raise an error if it is invalid."""
        delta = arrays.as_input(data, self._dtype, shapes, what)
        if self._requires_finite:
            arrays.require_finite(delta, what)
        return delta

    def __array__(self, *arguments: object, **options: object) -> NoReturn:
        """Raise TypeError: NumPy would otherwise make an array of one object, the table.

        An implicit `get` would be worse, because in sync mode workers make equally many.
        """
        raise TypeError(f"{type(self).__name__} is not an array: call get(), which returns one")

    if not TYPE_CHECKING:  # For a type checker, a table has neither of these.

        def __getitem__(self, *given: object) -> NoReturn:
            """Raise TypeError with what to write."""
            part = "keys" if hasattr(self, "items") else "index=i"
            raise TypeError(
                f"{type(self).__name__} is not an array: t.get() returns one, and t.add(delta) "
                f"changes the table; t.get({part}) and t.add(delta, {part}) do for a part"
            )

        __setitem__ = __iadd__ = __getitem__

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError: a table cannot be copied or pickled."""
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: it is a handle to memory that "
            f"the ranks of a session share. Copy or pickle the result of get()"
        )

    def _size_text(self) -> str:
        """Return the size of the table for its description."""
        raise NotImplementedError

    def __dir__(self) -> list[str]:
        """Return the names of what the table has, for completion, also of a closed table."""
        return [name for name in super().__dir__() if hasattr(type(self), name)]

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} '{self._name}': {self._size_text()} {self._stored_dtype}, "
            f"updater {self._updater}>"
        )


Hint.add_to(Table)


def _caller() -> tuple[int, str]:
    """Return the stacklevel and the place of the first code outside the package, for the caller."""
    stacklevel, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        stacklevel, frame = stacklevel + 1, frame.f_back
    return stacklevel, f"{name_of_file(frame.f_code.co_filename)}:{frame.f_lineno}"


@functools.cache
def _arguments_of(kind: type[Table]) -> list[str]:
    """Return the names of the arguments with which a user creates a table of this class."""
    names = inspect.signature(kind).parameters
    return [name for name in names if name != "options"]


def _create_invalid(session: _session.Session, raw: capi.MV_TableOptions) -> None:
    """Take part in the creation with invalid options: the other ranks then fail and do not wait.

    The library's error is only logged, because the caller raises the exception that led to it.
    """
    raw.num_row = 0
    handle = capi.MV_Table()
    try:
        checked.MV_TableCreate(session.handle, byref(raw), byref(handle))
    except Exception as error:
        _log.debug("took part in the creation of a table with invalid arguments: %s", error)
