"""Keep the parameters of a model, which are a pytree, in step with those of all workers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.jax_ext._arrays import ArrayCopier
from multiverso.sync._staging import Staging, staged_tensors
from multiverso.sync._tensor import Tensor
from multiverso.sync._tensor_sync import TensorSync
from multiverso.tables import ArrayTableHandler

__all__ = ["PytreeSync"]


class PytreeSync:
    """Parameters that each worker trains, and that are synchronised through tables.

    Making one is collective: all ranks make it of pytrees of the same structure. Since arrays of
    JAX never change, it sets nothing: `params` are the master's values, which all workers start
    from, and `sync` takes what they have become and returns what to go on with.

    Parameters
    ----------
    params : pytree of array
        Of at least one leaf with elements. Leaves are arrays of float32, float64, int32, int64, or
        of float16 and bfloat16, which are summed up in float32. On the CPU their memory is read in
        place.
    name : str, optional
        What messages call it, "parameters" by default.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.

    Raises
    ------
    ValueError
        If there are no leaves, or none has an element.
    TypeError
        If a leaf is no array, or of another dtype.
    MismatchError
        If another rank's pytree differs in number, shape or dtype of its leaves.
    MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.ArrayTableHandler`.

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

    def __init__(self, params: Any, name: str | None = None, *, overlap: bool = False) -> None:
        self._leaves: list[jax.Array] = []
        self._given: list[jax.Array] | None = None
        self._sync = TensorSync(lambda: self._tensors_of(params), name, overlap)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._sync.name

    @property
    def tables(self) -> tuple[ArrayTableHandler, ...]:
        """The tables: one for each dtype, in the order in which these come among the leaves."""
        return self._sync.tables

    @property
    def params(self) -> Any:
        """The values after the last sync; before the first the master's, to start from."""
        self._given = None
        return jax.tree.unflatten(self._structure, self._leaves)

    def sync(self, params: Any) -> Any:
        """Add what this worker has learned since the last time, return what all have learned.

        Parameters
        ----------
        params : pytree of array
            What the parameters have become, of the structure, shapes and dtypes they always had.
            A worker that has never asked for the master's `params` has trained those that it
            gave: then it is what they have gained.

        Returns
        -------
        pytree of jax.Array
            What to go on with.

        Raises
        ------
        ValueError
            If the structure, a shape or a dtype has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.sync`.

        """
        leaves = self._checked(params)
        if self._given is not None:
            self._leaves, self._given = self._given, None
            self._sync.restart()
        self._leaves = leaves
        self._sync.sync()
        return self.params

    def wait(self, params: Any) -> Any:
        """With ``overlap=True``: wait for the last exchange, return `params` with its result.

        Parameters
        ----------
        params : pytree of array
            What the parameters are now.

        Returns
        -------
        pytree of jax.Array
            What to go on with.

        Raises
        ------
        ValueError, StateError, OperationTimeout, PeerLostError, AbortedError
            As for `sync`.

        """
        self._leaves = self._checked(params)
        self._sync.wait()
        return self.params

    def _tensors_of(self, params: Any) -> list[Tensor]:
        paths, self._structure = jax.tree_util.tree_flatten_with_path(params)
        self._paths = [jax.tree_util.keystr(path) for path, _ in paths]
        self._leaves = [
            _array_of(leaf, path) for path, (_, leaf) in zip(self._paths, paths, strict=True)
        ]
        self._kinds = [(leaf.shape, leaf.dtype) for leaf in self._leaves]
        self._types = _types_of(self._leaves)
        self._given = list(self._leaves)
        return staged_tensors(
            [leaf.shape for leaf in self._leaves],
            [leaf.dtype.name for leaf in self._leaves],
            [1.0] * len(self._leaves),
            lambda places: _Leaves(self._leaves_at, self._replace, places, self._leaves),
        )

    def _leaves_at(self, places: list[int]) -> list[jax.Array]:
        return [self._leaves[place] for place in places]

    def _replace(self, places: list[int], arrays: list[jax.Array]) -> None:
        self._leaves = list(self._leaves)
        for place, array in zip(places, arrays, strict=True):
            self._leaves[place] = array

    def _checked(self, params: Any) -> list[jax.Array]:
        leaves, structure = jax.tree.flatten(params)
        if structure != self._structure:
            msg = f"params: expected the structure {self._structure}, received {structure}"
            raise ValueError(msg)
        # What a compiled step returns has the same types each time, which are quick to compare.
        types = _types_of(leaves)
        if types is not None and types == self._types:
            return list(leaves)
        arrays = [
            leaf if isinstance(leaf, jax.Array) else _array_of(leaf, path)
            for path, leaf in zip(self._paths, leaves, strict=True)
        ]
        for path, array, kind in zip(self._paths, arrays, self._kinds, strict=True):
            if (array.shape, array.dtype) != kind:
                msg = (
                    f"params{path}: expected shape {kind[0]} and dtype {kind[1]} as at first, "
                    f"received {array.shape}, {array.dtype}"
                )
                raise ValueError(msg)
        self._types = types
        return arrays


class _Leaves:
    """The leaves of one dtype."""

    is_dense = False

    def __init__(self, get: Any, replace: Any, places: list[int], leaves: list[jax.Array]) -> None:
        self._get = get
        self._replace = replace
        self._places = places
        self._copier = ArrayCopier([leaves[place] for place in places])
        self._copies: list[jax.Array] = []

    def read(self, staging: Staging) -> None:
        """Copy the leaves there."""
        self._copier.read(self._get(self._places), staging)

    def write(self, staging: Staging) -> None:
        """Put new leaves in their places."""
        self._replace(self._places, self._copier.arrays_of(staging))

    def expose(self) -> list[int] | None:
        """Copy the leaves to new ones, for the native pass to work on."""
        made = self._copier.copies_of(self._get(self._places))
        if made is None:
            return None
        self._copies, addresses = made
        return addresses

    def accept(self) -> None:
        """Put these in the leaves' places."""
        copies, self._copies = self._copies, []
        self._replace(self._places, copies)


def _types_of(leaves: list[Any]) -> list[Any] | None:
    """Return what JAX says of the shape and dtype of each; None if one is no array of JAX."""
    try:
        return [leaf.aval for leaf in leaves]
    except AttributeError:
        return None


def _array_of(leaf: Any, path: str) -> jax.Array:
    """Return a leaf as an array of JAX; TypeError if no table can hold it."""
    try:
        array = jnp.asarray(leaf)
    except (TypeError, ValueError) as error:
        msg = f"params{path}: expected an array, received {type(leaf).__name__}"
        raise TypeError(msg) from error
    if array.dtype.name not in TABLE_DTYPES:
        known = ", ".join(TABLE_DTYPES)
        msg = f"params{path}: expected one of the dtypes {known}, received {array.dtype}"
        raise TypeError(msg)
    if isinstance(leaf, np.ndarray):
        array = jnp.copy(array)  # the program may change its own
    return array
