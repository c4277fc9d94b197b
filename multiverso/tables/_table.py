"""The base class of array and matrix tables: their creation, and the calls on a whole table."""

import functools
import logging
import math
import weakref
from collections.abc import Callable
from ctypes import byref, c_int32, c_int64, c_void_p, sizeof
from typing import Any, ClassVar, Final, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso import _session, initializers
from multiverso._native import arrays, capi, checkpoint_calls
from multiverso._native.arguments import choice, integer, text
from multiverso._native.arrays import pin
from multiverso._native.checkpoint_calls import StrPath
from multiverso._native.dtypes import table_dtype
from multiverso._native.library import checked, undeclared
from multiverso.tables._background import BackgroundCalls, Future
from multiverso.tables._shared_arrays import SharedArrays
from multiverso.tables._updaters import OPTIONAL, UPDATERS, hyper_values, set_updater

_log = logging.getLogger("multiverso")

# Globals, because looking up attributes would slow down the calls on small tables.
_ndarray: Final = np.ndarray
_table_get: Final = undeclared("MV_TableGet")
_table_add: Final = undeclared("MV_TableAdd")
_table_add_get: Final = undeclared("MV_TableAddGet")
_NO_FLAGS: Final = c_int32.from_param(0)
_COLLECTIVE: Final = c_int32(capi.MV_COLLECTIVE)
_NUMA: Final = {"interleave": capi.MV_NUMA_INTERLEAVE}


class Table:
    """Parameters that every rank of the session shares.

    `_get`, `_add` and `add_get` start with the fast path: an array that needs no conversion is
    passed directly to the library. The functions of `arrays` convert everything else.
    """

    __slots__ = (
        "__weakref__",
        "_count_argument",
        "_background",
        "_dtype",  # of deltas and results
        "_fast_add_shape",
        "_handle",
        "_handle_argument",
        "_input_shapes",
        "_name",
        "_requires_finite",
        "_shape",
        "_shared_arrays",
        "_stored_dtype",
        "_updater",
    )

    _kind: ClassVar[int]  # MV_TABLE_ARRAY or MV_TABLE_MATRIX

    def __init__(
        self,
        checked_shape: Callable[[], tuple[int, ...]],
        init_value: object,
        dtype: object,
        updater: object,
        name: object,
        max_bytes: object,
        numa: object,
        options: dict[str, Any],
    ) -> None:
        """Create the table together with all ranks; `checked_shape` raises for an invalid shape."""
        session = _session.current()
        session.settle()
        raw = capi.MV_TableOptions()
        checked.MV_TableOptionsInit(byref(raw))
        raw.kind = self._kind
        try:
            raw.name = None if name is None else text(name, "name").encode()
            self._updater = set_updater(raw, updater, options)
            raw.dtype, self._stored_dtype, self._dtype = table_dtype(dtype)
            self._shape = checked_shape()
            self._input_shapes = _input_shapes(self._shape)
            self._requires_finite = session.options.requires_finite and self._dtype.kind == "f"
            # nan_policy="error" must scan every delta, so it disables the fast path of adds.
            self._fast_add_shape = None if self._requires_finite else self._shape
            # If ranks may be lost, any worker may become the master, so each passes its values.
            may_be_master = session.worker_id == 0 or session.options.continues
            raw.max_bytes = 0 if max_bytes is None else integer(max_bytes, "max_bytes", 1)
            if numa is not None:
                raw.numa = _NUMA[choice(numa, "numa", _NUMA)]
            if init_value is None and max_bytes is not None:
                init_value = initializers.Zeros()
            if isinstance(init_value, initializers.Initializer):
                initializers.set_initializer(raw, init_value, self._dtype)
                init_value = None
            initial = _initial_values(init_value, self._dtype, self._input_shapes, may_be_master)
        except Exception:
            _create_invalid(session, raw)
            raise
        raw.num_row, raw.num_col = (*self._shape, 1)[:2]
        if initial is not None:
            raw.init_value = arrays.address(initial)
        self._handle = capi.MV_Table()
        checked.MV_TableCreate(session.handle, byref(raw), byref(self._handle))
        # The finalizer's copy of the handle outlives this object. Once the session has freed the
        # table, the handle is stale, and MV_TableFree has no effect.
        self._background = BackgroundCalls(capi.MV_Table(self._handle.value))
        free = weakref.finalize(self, self._background.free_table)
        free.atexit = False  # The end of the session frees the table.
        self._shared_arrays: SharedArrays | None = None
        # Arguments that ctypes need not convert in each call.
        self._handle_argument = c_void_p.from_param(self._handle.value)
        self._count_argument = c_int64.from_param(math.prod(self._shape))
        self._name = name if isinstance(name, str) else f"table {self._description().id}"

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
    def shape(self) -> tuple[int, ...]:
        """The shape of the table: (size,), or (num_row, num_col)."""
        return self._shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def updater(self) -> str:
        """The name of the updater, which applies the deltas."""
        return self._updater

    @property
    def options(self) -> dict[str, float]:
        """The current options of the updater, which are the same for all ranks.

        ``weight_decay`` and ``clipvalue`` are left out while they are 0 and have no effect.
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
        TypeError
            If the updater has no such option, or a value is not a number.
        ValueError
            If a value is not finite or out of range.
        StateError
            If the session has been shut down.
        OperationTimeout, PeerLostError
            If a server of another node does not answer.

        """
        values = hyper_values(self._updater, options)
        for index, value in values.items():
            checked.MV_TableCheckHyper(self._handle, index, value)
        for index, value in values.items():
            checked.MV_TableSetHyper(self._handle, index, value)

    def save(self, directory: StrPath, *, step: int | None = None, keep: int | None = None) -> None:
        """Save only this table. Collective over all ranks.

        Parameters and errors are those of `multiverso.save`; the save is never in the background.
        The checkpoint can also be loaded into a table of another name.
        """
        self._settle()
        raw = checkpoint_calls.save_options(directory, step, keep)
        checked.MV_TableSave(self._handle, byref(raw))

    def load(self, directory: StrPath, *, missing_ok: bool = False) -> int | None:
        """Load only this table. Collective over all ranks.

        Parameters, result and errors are those of `multiverso.load`. From a checkpoint of several
        tables, the one with the name of this table is loaded; the only table may have any name.
        """
        self._settle()
        step: int | None = checkpoint_calls.load(
            checked.MV_TableLoad, self._handle, directory, missing_ok
        )
        self.set_option(**_session.current().fixed_options.get(self, {}))
        return step

    def _description(self) -> capi.MV_TableDescription:
        raw = capi.MV_TableDescription(struct_size=sizeof(capi.MV_TableDescription))
        checked.MV_TableDescribe(self._handle, byref(raw))
        return raw

    def _settle(self) -> None:
        """Wait for the exchanges in flight, which a collective call must not overlap."""
        if (session := _session.find()) is not None:
            session.settle()

    def _collective_flags(self) -> c_int32:
        """Return the flags of a collective get, when no exchange is in flight any more."""
        self._settle()
        return _COLLECTIVE

    def _get(self, sync: bool, out: Any) -> Any:
        flags = self._collective_flags() if sync else _NO_FLAGS
        if (
            type(out) is _ndarray
            and out.dtype is self._dtype
            and out.shape == self._shape
            and out.flags.carray
        ):
            _table_get(self._handle_argument, pin(out), self._count_argument, flags)
            return out
        if out is None:
            fresh = np.empty(self._shape, self._dtype)
            _table_get(self._handle_argument, pin(fresh), self._count_argument, flags)
            return fresh
        buffer, target = self._output(out, self._shape)
        _table_get(self._handle_argument, pin(buffer), self._count_argument, flags)
        arrays.copy_out(buffer, target)
        return out

    def _add(self, data: Any) -> None:
        if (
            type(data) is _ndarray
            and data.dtype is self._dtype
            and data.shape == self._fast_add_shape
            and data.flags.carray
        ):
            _table_add(self._handle_argument, pin(data), self._count_argument)
            return
        delta = self._delta_of(data, self._input_shapes)
        _table_add(self._handle_argument, arrays.pointer(delta), self._count_argument)

    def add_get(self, data: ArrayLike, out: Any = None) -> Any:
        """Apply a delta to the whole table and return the new values, in one pass over the memory.

        Parameters
        ----------
        data : array_like of the table's shape, or flat with as many elements
            The delta, as for `add`.
        out : array of the table's shape and dtype, optional
            The array to write the values to; it may be `data` itself.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of the table's shape.

        Raises
        ------
        TypeError, ValueError, StateError
            As for `add` and `get`. The table is unchanged.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `add` and `get`.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     mv.ArrayTableHandler(2, dtype="int64").add_get([3, 4])
        array([3, 4])

        """
        if out is None:
            out = np.empty(self._shape, self._dtype)
        if (
            type(data) is _ndarray
            and type(out) is _ndarray
            and data.dtype is self._dtype
            and out.dtype is self._dtype
            and data.shape == self._fast_add_shape
            and out.shape == self._shape
            and data.flags.carray
            and out.flags.carray
        ):
            source = pin(data)
            sink = source if data is out else pin(out)
            try:
                _table_add_get(self._handle_argument, source, sink, self._count_argument)
            except ValueError:
                pass  # The library rejects arrays that overlap.
            else:
                return out
        buffer, target = self._output(out, self._shape)
        delta = self._delta_of(data, self._input_shapes)
        if np.may_share_memory(delta, buffer):
            delta = delta.copy()
        sink = pin(buffer)
        _table_add_get(self._handle_argument, arrays.pointer(delta), sink, self._count_argument)
        arrays.copy_out(buffer, target)
        return out

    def _get_async(self, out: Any) -> Future:
        if out is None:
            out = np.empty(self._shape, self._dtype)
        buffer, target = self._output(out, self._shape)
        return self._background.start(b"get", None, None, buffer, out, copier(buffer, target))

    def _add_async(self, data: Any) -> Future:
        delta = self._delta_of(data, self._input_shapes)
        return self._background.start(b"add", None, delta, None)

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

        """
        self._background.flush(timeout)

    def delta_buffer(self) -> NDArray[Any]:
        """Return the array in which this worker writes its next delta for the whole table.

        In sync mode on one node the array lies in memory that the workers share, so `add` and
        `add_get` need not copy a delta that is there. Elsewhere the array is private, and the same
        program gives the same results. From the add on, the array belongs to the table: ask for it
        again before you write the next delta. The array then still has the values that you wrote;
        at first it has zeros. It is the same array each time, and it may outlive the table.

        The call waits until the add of the last delta in the array has been applied, which in sync
        mode needs that add of every worker. So it does not wait after a get or a view.

        Returns
        -------
        numpy.ndarray
            A writable array of the table's shape and dtype.

        Raises
        ------
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            In sync mode, if another worker does not make its add.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.ArrayTableHandler(2)
        ...     for step in range(3):
        ...         delta = table.delta_buffer()
        ...         delta[:] = table.view() + 1
        ...         table.add(delta)
        ...     table.get()
        array([7., 7.], dtype=float32)

        """
        return self._arrays().delta_buffer()

    def view(self) -> NDArray[Any]:
        """Return the values of the table as `get` does, where possible without a copy.

        In sync mode on one node the array is the table's own memory. Elsewhere, and after
        `multiverso.finish`, it is a copy. It is valid until this worker's next call of `add`,
        `add_get`, `view`, `multiverso.finish` or `multiverso.load`; later its values are undefined,
        but you may still read them, also after the end of the table. The call counts and waits as
        a get.

        Returns
        -------
        numpy.ndarray
            A read-only array of the table's shape and dtype.

        Raises
        ------
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `get`.

        """
        return self._arrays().view()

    def _arrays(self) -> SharedArrays:
        if self._shared_arrays is None:

            def get(out: NDArray[Any], handle: capi.MV_Table = self._handle) -> None:
                checked.MV_TableGet(handle, pin(out), out.size, 0)

            self._shared_arrays = SharedArrays(self._handle, self._shape, self._dtype, get)
        return self._shared_arrays

    def prepare_add(self, delta: Any) -> Callable[[], None]:
        """Check `delta` once, and return a function that makes the call ``add(delta)``.

        A call of the function is one call of C, which takes a third of the time of an `add` of a
        few elements. It adds what `delta` contains at that time; everything else is as with `add`,
        such as the modes and the errors. The function keeps the table and the memory of `delta`.

        Parameters
        ----------
        delta : array of the table's shape, or flat with as many elements
            A C-contiguous array of the table's dtype, or an object that shares the memory of one,
            such as a torch CPU tensor. Change its elements in place; do not resize it.

        Returns
        -------
        callable
            A function that takes no arguments and returns None.

        Raises
        ------
        TypeError, ValueError
            If `delta` is not such an array. The message says what was expected.

        Examples
        --------
        >>> import numpy as np
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.ArrayTableHandler(2)
        ...     delta, values = np.empty(2, np.float32), np.empty(2, np.float32)
        ...     push, pull = table.prepare_add(delta), table.prepare_get(values)
        ...     for delta[:] in ([1, 2], [3, 4]):
        ...         push()
        ...     pull()
        array([4., 6.], dtype=float32)

        """
        source = arrays.as_shared(delta, self._dtype, self._input_shapes, "delta")
        return self._prepared("MV_TableAdd", None, source, None)

    def prepare_get(self, out: Any) -> Callable[[], Any]:
        """Check `out` once, and return a function that makes the call ``get(out=out)``.

        Parameters
        ----------
        out : array of the table's shape
            As `delta` of `prepare_add`, and writable.

        Returns
        -------
        callable
            A function as that of `prepare_add`, but it returns `out`.

        Raises
        ------
        TypeError, ValueError
            If `out` is not such an array. The message says what was expected.

        """
        sink = arrays.as_shared(out, self._dtype, (self._shape,), "out", is_output=True)
        return self._prepared("MV_TableGet", out, None, sink, _NO_FLAGS)

    def prepare_add_get(self, delta: Any, out: Any) -> Callable[[], Any]:
        """Check both once, and return a function that makes the call ``add_get(delta, out)``.

        Parameters
        ----------
        delta : array of the table's shape, or flat with as many elements
            As for `prepare_add`.
        out : array of the table's shape
            As for `prepare_get`. It may have the same memory as `delta`, or separate memory.

        Returns
        -------
        callable
            A function as that of `prepare_add`, but it returns `out`.

        Raises
        ------
        TypeError, ValueError
            If one of them is not such an array. The message says what was expected.

        """
        source = arrays.as_shared(delta, self._dtype, self._input_shapes, "delta")
        sink = arrays.as_shared(out, self._dtype, (self._shape,), "out", is_output=True)
        if np.may_share_memory(source, sink) and arrays.address(source) != arrays.address(sink):
            msg = "out: expected the memory of delta or separate memory, received an overlap"
            raise ValueError(msg)
        return self._prepared("MV_TableAddGet", out, source, sink)

    def _prepared(
        self,
        name: str,
        result: object,
        source: NDArray[Any] | None,
        sink: NDArray[Any] | None,
        *flags: object,
    ) -> Callable[[], Any]:
        """Return a function that calls `name` of the library and returns `result`."""
        buffers = [buffer for buffer in (source, sink) if buffer is not None]
        run = functools.partial(
            undeclared(name, result, used=(self, buffers)),
            self._handle_argument,
            *(c_void_p.from_param(arrays.address(buffer)) for buffer in buffers),
            self._count_argument,
            *flags,
        )
        if source is None or not self._requires_finite:
            return run

        def run_if_finite() -> Any:
            arrays.require_finite(source, "delta")
            return run()

        return run_if_finite

    def _output(self, out: Any, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return a buffer for results and the user's array, as `arrays.as_output` does."""
        return arrays.as_output(out, self._dtype, shape, also=self._stored_dtype)

    def _delta_of(self, data: Any, shapes: tuple[tuple[int, ...], ...]) -> NDArray[Any]:
        """Return `data` as an array that the library can add; raise an error if it is invalid."""
        delta = arrays.as_input(data, self._dtype, shapes, "data")
        if self._requires_finite:
            arrays.require_finite(delta, "data")
        return delta

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError: a table cannot be copied or pickled."""
        msg = (
            f"{type(self).__name__} cannot be copied or pickled: it is a handle to memory that "
            f"the ranks of a session share. Copy or pickle the result of get()"
        )
        raise TypeError(msg)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self._shape))
        return (
            f"<{type(self).__name__} '{self._name}': {shape} {self._stored_dtype}, "
            f"updater {self._updater}>"
        )


def copier(buffer: NDArray[Any], target: NDArray[Any]) -> Callable[[], None] | None:
    """Return a function that copies the result of a background call to where the user wants it."""
    return None if buffer is target else functools.partial(arrays.copy_out, buffer, target)


def _input_shapes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (shape,) if len(shape) == 1 else (shape, (math.prod(shape),))


def _initial_values(
    value: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], is_used: bool
) -> NDArray[Any] | None:
    """Return the initial values for the library; None means zeros, or that they are not used."""
    if value is None:
        return None
    given = arrays.as_array(value, "init_value")
    is_scalar = given.ndim == 0
    allowed = ((),) if is_scalar else shapes
    if not is_used:
        # An unused value is checked too, so that an invalid one raises on the rank that passes it.
        arrays.checked_input(given, dtype, allowed, "init_value")
        return None
    array = arrays.as_input(given, dtype, allowed, "init_value")
    if not is_scalar:
        return array
    # A new table is zero already; passing zeros would touch all of its pages.
    return np.full(shapes[0], array, dtype) if any(array.tobytes()) else None


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
