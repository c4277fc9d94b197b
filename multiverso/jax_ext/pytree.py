"""Synchronizes parameters in a pytree, such as those of a model, between all workers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from multiverso._native.dtypes import require_table_dtype
from multiverso.api import current_session
from multiverso.jax_ext._arrays import ArrayCopier
from multiverso.sync._host_copy import HostCopy, host_copy_tensors
from multiverso.sync._options import ManagerOptions, divided
from multiverso.sync._shares import averages_by_default, share_of_parameter
from multiverso.sync._tensor import Tensor
from multiverso.sync._tensor_sync import TensorSync
from multiverso.tables import ArrayTable

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Params = TypeVar("_Params")

__all__ = ["PytreeSync"]


class PytreeSync:
    """Synchronizes parameters that each worker trains, through tables.

    The constructor is collective: all ranks pass pytrees of the same structure. JAX arrays never
    change, so a sync returns new arrays: start from `params`, the master's values, pass the trained
    parameters to `sync`, and continue with its result.

    Parameters
    ----------
    params : pytree of array
        A pytree whose leaves are arrays of float32, float64, int32, int64, float16 or bfloat16; at
        least one leaf has an element. Half precision is summed in float32.
    name : str, optional
        The name in messages, "parameters" by default.
    overlap, average, **options : optional
        As for `multiverso.sync.ParamSync`. `average` is True by default, with a FutureWarning if
        there are several workers, because earlier versions summed.

    Raises
    ------
    TypeError, ValueError
        If a leaf is not an array or has another dtype, none has an element, or an integer does not
        fit the type that JAX has without jax_enable_x64.
    MismatchError, MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.sync.ParamSync`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import multiverso as mv
    >>> from multiverso.jax_ext import PytreeSync
    >>> with mv.session():
    ...     sync = PytreeSync({"w": jnp.zeros(2), "b": jnp.zeros(())})
    ...     params = sync.params
    ...     params = {"w": params["w"] + 1, "b": params["b"] - 1}  # training
    ...     sync.sync(params)["w"]
    Array([1., 1.], dtype=float32)

    """

    def __init__(
        self,
        params: Any,
        name: str | None = None,
        *,
        overlap: bool = False,
        average: bool | None = None,
        **options: "Unpack[ManagerOptions]",
    ) -> None:
        averages = averages_by_default(average, options, type(self).__name__)
        self._leaves: list[jax.Array] = []
        #: Copies of the constructor's leaves, until `params` is read or the first sync begins.
        self._initial_leaves: list[jax.Array] | None = None
        given = {"overlap": overlap, "average": averages, **options}
        self._sync = TensorSync(lambda: self._tensors_of(params, averages), name, *divided(given))
        self._sync.has_tensors = self._sync.asks_to_leave = False
        turns = current_session().companions.setdefault(__name__, [])
        if not turns:
            turns.append(_Turns())
        self._turns: _Turns = turns[0]
        self._number = self._turns.objects
        self._turns.objects += 1

    @property
    def name(self) -> str:
        """The name in messages."""
        return self._sync.name

    @property
    def tables(self) -> tuple[ArrayTable, ...]:
        """The tables: one for each dtype, in the order of their first use in the leaves."""
        return self._sync.tables

    @property
    def params(self) -> Any:
        """The values after the last sync, or the master's values before the first sync."""
        self._initial_leaves = None
        return jax.tree.unflatten(self._structure, self._leaves)

    def sync(self, params: _Params) -> _Params:
        """Add this worker's delta since the last sync, and return the values of the tables.

        With `sync_every` or `fragments`, the call does so for the fragments that are due.

        Parameters
        ----------
        params : pytree of array
            The trained parameters, of the same structure, shapes and dtypes as at first. If you
            have never read the attribute `params`, the delta of the first sync is the change of
            the parameters that you passed to the constructor.

        Returns
        -------
        pytree of jax.Array
            The parameters to continue with, which include the deltas of all workers.

        Raises
        ------
        ValueError
            If the structure, a shape or a dtype has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.sync`.

        """
        return self._synced(params, self._sync.step)

    def sync_all(self, params: _Params) -> _Params:
        """Synchronize all fragments now.

        Parameters, result and errors are those of
        [`sync`][multiverso.jax_ext.pytree.PytreeSync.sync].
        """
        return self._synced(params, self._sync.sync)

    def _synced(self, params: _Params, sync: Callable[[], None]) -> _Params:
        leaves = self._checked_leaves(params)
        if self._initial_leaves is not None:
            self._leaves, self._initial_leaves = self._initial_leaves, None
            self._sync.restart()
        self._leaves = leaves
        ends_step = self._turns.ends_step(self._number)
        self._sync.has_tensors = True
        try:
            sync()
            if ends_step:
                self._sync.check_leaving()
        finally:
            # The program trains what this returns, and may donate it to the next step.
            self._sync.has_tensors = False
        synced: _Params = self.params
        return synced

    def wait(self, params: _Params) -> _Params:
        """Wait for the exchange of the last sync and return its result, with ``overlap=True``.

        It raises the errors of [`sync`][multiverso.jax_ext.pytree.PytreeSync.sync].

        Parameters
        ----------
        params : pytree of array
            The current parameters, of which the change since the last sync is kept.

        Returns
        -------
        pytree of jax.Array
            The parameters to continue with.

        """
        self._leaves = self._checked_leaves(params)
        self._sync.wait()
        synced: _Params = self.params
        return synced

    def _tensors_of(self, params: Any, average: bool) -> list[Tensor]:
        paths_and_leaves, self._structure = jax.tree_util.tree_flatten_with_path(params)
        self._paths = [jax.tree_util.keystr(path) for path, _ in paths_and_leaves]
        self._leaves = [
            _array_of(leaf, path)
            for path, (_, leaf) in zip(self._paths, paths_and_leaves, strict=True)
        ]
        self._shapes_and_dtypes = [(leaf.shape, leaf.dtype) for leaf in self._leaves]
        self._types = _types_of(self._leaves)
        # Copies, because a step may donate the arrays that the program has given.
        self._initial_leaves = [jnp.copy(leaf) for leaf in self._leaves]
        return host_copy_tensors(
            [leaf.shape for leaf in self._leaves],
            [leaf.dtype.name for leaf in self._leaves],
            [share_of_parameter(leaf.dtype.name, average) for leaf in self._leaves],
            lambda indices: _LeafStore(self._leaves_at, self._replace, indices),
        )

    def _leaves_at(self, indices: list[int]) -> list[jax.Array]:
        return [self._leaves[index] for index in indices]

    def _replace(self, indices: list[int], arrays: list[jax.Array]) -> None:
        self._leaves = list(self._leaves)
        for index, array in zip(indices, arrays, strict=True):
            self._leaves[index] = array

    def _checked_leaves(self, params: Any) -> list[jax.Array]:
        leaves, structure = jax.tree.flatten(params)
        if structure != self._structure:
            msg = f"params: expected the structure {self._structure}, received {structure}"
            raise ValueError(msg)
        # A compiled step returns the same types each time, and equal types are quick to compare.
        types = _types_of(leaves)
        if types is not None and types == self._types:
            return list(leaves)
        arrays = [
            leaf if isinstance(leaf, jax.Array) else _array_of(leaf, path)
            for path, leaf in zip(self._paths, leaves, strict=True)
        ]
        for path, array, expected in zip(self._paths, arrays, self._shapes_and_dtypes, strict=True):
            if (array.shape, array.dtype) != expected:
                raise ValueError(
                    f"params{path}: expected shape {expected[0]} and dtype {expected[1]} as at"
                    f" first, received {array.shape}, {array.dtype}"
                )
        self._types = types
        return arrays


class _Turns:
    """Which of the `PytreeSync` objects of a session is the last one in a step of the program.

    A generator and a discriminator, for instance, are synchronized one after the other. A rank may
    leave after the last of them, when all are as of the same step. All ranks make the same calls,
    and the answer depends on these alone, because a rank that asks alone waits for the others.
    """

    #: After so many syncs of one object in a row, each of them counts as the end of a step.
    _MOST = 100

    def __init__(self) -> None:
        self.objects = 0  # that have been made
        self._numbers: dict[int, int] = {}  # by the number of the object: its turn in a step
        self._last = -1  # the turn of the last sync
        self._repeats = 0
        self._ends: dict[int, bool] = {}  # whether a turn was the last one in its step

    def ends_step(self, number: int) -> bool:
        """Return whether the sync that begins, of that object, is the last one in its step."""
        turn = self._numbers.setdefault(number, len(self._numbers))
        self._repeats = self._repeats + 1 if turn == self._last else 0
        if turn != self._last:
            self._ends[self._last] = turn < self._last
        self._last = turn
        return self.objects == 1 or self._ends.get(turn, False) or self._repeats >= self._MOST


class _LeafStore:
    """The store of the leaves with `indices`, which are of one dtype."""

    is_dense = False

    def __init__(self, get: Any, replace: Any, indices: list[int]) -> None:
        self._get = get
        self._replace = replace
        self._indices = indices
        self._copier = ArrayCopier(get(indices))
        self._copies: list[jax.Array] = []

    def read(self, host_copy: HostCopy) -> None:
        """Copy the leaves to `host_copy`."""
        self._copier.read(self._get(self._indices), host_copy)

    def write(self, host_copy: HostCopy) -> None:
        """Replace the leaves by new arrays of the values in `host_copy`."""
        self._replace(self._indices, self._copier.arrays_of(host_copy))

    def expose(self) -> list[int] | None:
        """Return the addresses of new copies of the leaves, or None."""
        copies = self._copier.copies_of(self._get(self._indices))
        if copies is None:
            return None
        self._copies, addresses = copies
        return addresses

    def accept(self) -> None:
        """Replace the leaves by the copies."""
        copies, self._copies = self._copies, []
        self._replace(self._indices, copies)


def _types_of(leaves: list[Any]) -> list[Any] | None:
    """Return the JAX types of the leaves, or None if a leaf is not a JAX array."""
    try:
        return [leaf.aval for leaf in leaves]
    except AttributeError:
        return None


def _array_of(leaf: Any, path: str) -> jax.Array:
    """Return a leaf as a JAX array; raise TypeError if no table can hold the leaf."""
    try:
        array = jnp.asarray(leaf)
    except (TypeError, ValueError) as error:
        msg = f"params{path}: expected an array, received {type(leaf).__name__}"
        raise TypeError(msg) from error
    is_cut = array.dtype.kind in "iu" and not isinstance(leaf, jax.Array)
    if is_cut and not np.array_equal(np.asarray(leaf), np.asarray(array)):
        raise ValueError(
            f"params{path}: expected integers that fit {array.dtype}; JAX has larger ones with "
            "jax_enable_x64"
        )
    require_table_dtype(array.dtype.name, f"params{path}")
    if isinstance(leaf, np.ndarray):
        array = jnp.copy(array)  # The program may change the NumPy array.
    return array
