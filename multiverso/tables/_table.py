"""What array and matrix tables have in common: creation, and the calls on the whole table."""

import logging
import math
import weakref
from collections.abc import Callable
from ctypes import addressof, byref, c_int32, c_int64, sizeof
from typing import Any, Final, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from multiverso import _session
from multiverso._native import arrays, capi, checkpoint_calls, library
from multiverso._native.arrays import pin
from multiverso._native.library import call, lib
from multiverso.tables._updaters import UPDATERS, hyper_values, set_updater

_log = logging.getLogger("multiverso")

# Bound once, and converted for C once: a call on a small table takes less than a microsecond.
_ndarray: Final = np.ndarray
_table_get: Final = lib.MV_TableGet
_table_add: Final = lib.MV_TableAdd
_table_add_get: Final = lib.MV_TableAddGet
# For arrays that are right as they are, of which everything is a ctypes object.
_get_right: Final = library.undeclared("MV_TableGet")
_add_right: Final = library.undeclared("MV_TableAdd")
_add_get_right: Final = library.undeclared("MV_TableAddGet")
PLAIN: Final = c_int32(0)
COLLECTIVE: Final = c_int32(capi.MV_COLLECTIVE)


class Table:
    """A table: parameters that every rank of the session shares.

    `Table._get` and its kin begin with a test for an array that is right as it is. Everything
    else that NumPy can make right goes the long way round, through `_arrays`.
    """

    __slots__ = (
        "__weakref__",
        "_count",
        "_dtype",
        "_handle",
        "_input_shapes",
        "_is_checked",
        "_name",
        "_nbytes",
        "_right_shape",
        "_shape",
        "_updater",
    )

    def __init__(
        self,
        kind: int,
        shape: Callable[[], tuple[int, ...]],
        init_value: object,
        dtype: object,
        updater: object,
        name: object,
        options: dict[str, Any],
    ) -> None:
        """Create the table with all ranks; `shape` returns its shape, or raises what is wrong."""
        session = _session.current()
        session.settle()
        raw = capi.MV_TableOptions()
        call(lib.MV_TableOptionsInit, byref(raw))
        raw.kind = kind
        try:
            encoded = _encoded(name)
            raw.name = encoded
            self._updater = set_updater(raw, updater, options)
            raw.dtype, self._dtype = arrays.table_dtype(dtype)
            self._shape = shape()
            self._input_shapes = _input_shapes(self._shape)
            self._is_checked = session.options.is_checked and self._dtype.kind == "f"
            # No delta is right as it is before it has been looked at, and others pay nothing.
            self._right_shape = None if self._is_checked else self._shape
            # Who is the master when all have come is known to the library.
            counts = session.worker_id == 0 or session.options.goes_on
            initial = _initial(init_value, self._dtype, self._input_shapes, counts)
        except Exception:
            _take_part(session, raw)
            raise
        raw.num_row, raw.num_col = (*self._shape, 1)[:2]
        if initial is not None:
            raw.init_value = arrays.address(initial)
        self._handle = capi.MV_Table()
        call(lib.MV_TableCreate, session.handle, byref(raw), byref(self._handle))
        # The copy of the handle outlives the table, and the library knows one that has gone.
        free = weakref.finalize(self, lib.MV_TableFree, capi.MV_Table(self._handle.value))
        free.atexit = False
        self._count = c_int64(math.prod(self._shape))
        self._nbytes = self._count.value * self._dtype.itemsize
        self._name = name if isinstance(name, str) else f"table {self._describe().id}"

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its NumPy dtype."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape: (size,), or (num_row, num_col)."""
        return self._shape

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self._count.value

    @property
    def updater(self) -> str:
        """The name of what `add` does with a delta."""
        return self._updater

    @property
    def options(self) -> dict[str, float]:
        """The updater's options as they are now, for all ranks."""
        hyper = self._describe().hyper
        return {name: hyper[place] for name, place in UPDATERS[self._updater][1].items()}

    def set_option(self, **options: float) -> None:
        """Change options of the updater, such as ``learning_rate``, for all ranks.

        In force from the next add on, on whichever rank that is. Waits only for the servers of
        other nodes to have taken note. An add that another worker makes at the same moment may
        see some of several new values.

        Parameters
        ----------
        **options : float
            New values by name.

        Raises
        ------
        TypeError
            If the updater has no such option, or a value is no number.
        ValueError
            If a value is not finite, or not one that the option can have. Nothing is changed,
            whichever error it is.
        StateError
            If the session has been shut down.
        OperationTimeout, PeerLostError
            If a server of another node does not answer.

        """
        values = hyper_values(self._updater, options)
        for place, value in values.items():
            call(lib.MV_TableCheckHyper, self._handle, place, value)
        for place, value in values.items():
            call(lib.MV_TableSetHyper, self._handle, place, value)

    def save(
        self,
        directory: checkpoint_calls.Directory,
        *,
        step: int | None = None,
        keep: int | None = None,
    ) -> None:
        """Save this table alone. Collective over all ranks.

        Takes and raises what `multiverso.save` does. The checkpoint can also be loaded into a table
        of another name.
        """
        raw = checkpoint_calls.save_options(directory, step, keep)
        call(lib.MV_TableSave, self._handle, byref(raw))

    def load(
        self, directory: checkpoint_calls.Directory, *, missing_ok: bool = False
    ) -> int | None:
        """Load this table alone, from a checkpoint of it or of all tables. Collective.

        Takes, returns and raises what `multiverso.load` does. Of a checkpoint of several tables the
        one with the name of this is taken.
        """
        step: int | None = checkpoint_calls.load(
            lib.MV_TableLoad, self._handle, directory, missing_ok
        )
        return step

    def _describe(self) -> capi.MV_TableDescription:
        raw = capi.MV_TableDescription(struct_size=sizeof(capi.MV_TableDescription))
        call(lib.MV_TableDescribe, self._handle, byref(raw))
        return raw

    def _get(self, sync: bool, out: Any) -> Any:
        flags = COLLECTIVE if sync else PLAIN
        if sync and (session := _session.find()) is not None:
            session.settle()
        if (
            type(out) is _ndarray
            and out.dtype is self._dtype
            and out.shape == self._shape
            and out.flags.carray
        ):
            call(_get_right, self._handle, pin(out), self._count, flags)
            return out
        if out is None:
            fresh = np.empty(self._shape, self._dtype)
            call(_get_right, self._handle, pin(fresh), self._count, flags)
            return fresh
        buffer, target = arrays.as_output(out, self._dtype, self._shape)
        call(_table_get, self._handle, pin(buffer), self._count, flags)
        if buffer is not target:
            np.copyto(target, buffer)
        return out

    def _add(self, data: Any) -> None:
        if (
            type(data) is _ndarray
            and data.dtype is self._dtype
            and data.shape == self._right_shape
            and data.flags.carray
        ):
            call(_add_right, self._handle, pin(data), self._count)
            return
        delta = self._delta_of(data, self._input_shapes)
        call(_table_add, self._handle, arrays.pointer(delta), self._count)

    def _add_get(self, data: Any, out: Any) -> Any:
        if out is None:
            out = np.empty(self._shape, self._dtype)
        if (
            type(data) is _ndarray
            and type(out) is _ndarray
            and data.dtype is self._dtype
            and out.dtype is self._dtype
            and data.shape == self._right_shape
            and out.shape == self._shape
            and data.flags.carray
            and out.flags.carray
        ):
            source = pin(data)
            sink = source if data is out else pin(out)
            # The library takes the same memory for both, or memory apart.
            if sink is source or abs(addressof(source) - addressof(sink)) >= self._nbytes:
                call(_add_get_right, self._handle, source, sink, self._count)
                return out
        buffer, target = arrays.as_output(out, self._dtype, self._shape)
        delta = self._delta_of(data, self._input_shapes)
        if np.may_share_memory(delta, buffer):
            delta = delta.copy()
        call(_table_add_get, self._handle, arrays.pointer(delta), pin(buffer), self._count)
        if buffer is not target:
            np.copyto(target, buffer)
        return out

    def _delta_of(self, data: Any, shapes: tuple[tuple[int, ...], ...]) -> NDArray[Any]:
        """Return what the library can add."""
        delta = arrays.as_input(data, self._dtype, shapes, "data")
        if self._is_checked:
            arrays.require_finite(delta, "data")
        return delta

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be copied or pickled."""
        msg = (
            f"{type(self).__name__} cannot be copied or pickled: it is a handle to memory that "
            f"the ranks of one session share. Copy or pickle what get() returns"
        )
        raise TypeError(msg)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self._shape))
        return (
            f"<{type(self).__name__} '{self._name}': {shape} {self._dtype}, "
            f"updater {self._updater}>"
        )


def _encoded(name: object) -> bytes | None:
    if name is None:
        return None
    if not isinstance(name, str):
        msg = f"name: expected a str, received {name!r}"
        raise TypeError(msg)
    if not name or "\0" in name:
        msg = f"name: expected one or more characters, none of them NUL, received {name!r}"
        raise ValueError(msg)
    return name.encode()


def _input_shapes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (shape,) if len(shape) == 1 else (shape, (math.prod(shape),))


def _initial(
    value: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], is_master: bool
) -> NDArray[Any] | None:
    """Return what the library shall store, or None for zeros and on ranks that are not asked."""
    if value is None:
        return None
    given = arrays.as_array(value, "init_value")
    scalar = given.ndim == 0
    wanted = ((),) if scalar else shapes
    if not is_master:  # checked nevertheless, so that a wrong script fails on whichever rank
        arrays.checked_input(given, dtype, wanted, "init_value")
        return None
    array = arrays.as_input(given, dtype, wanted, "init_value")
    if not scalar:
        return array
    # A new table is zero already, without a page of it touched.
    return np.full(shapes[0], array, dtype) if any(array.tobytes()) else None


def _take_part(session: _session.Session, raw: capi.MV_TableOptions) -> None:
    """Tell the other ranks, who wait for this one's part in the creation, that it is invalid."""
    raw.num_row = 0
    handle = capi.MV_Table()
    try:
        call(lib.MV_TableCreate, session.handle, byref(raw), byref(handle))
    except Exception as error:
        # The caller raises the reason itself; this is only its echo from the library.
        _log.debug("took part in creating a table with wrong arguments: %s", error)
