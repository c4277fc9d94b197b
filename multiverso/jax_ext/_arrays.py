"""Arrays of JAX on the way to a staging and back.

An array of JAX never changes, and others may hold it. So on the CPU the native pass works on copies
which nobody has seen yet, and which are handed out afterwards: one compiled call makes all of them,
which takes less time than a copy to a staging and new arrays of what the pass leaves there. Those
are the way where arrays are elsewhere, or of half precision.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from multiverso._native.arrays import memory_at
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._staging import Staging


class ArrayCopier:
    """Copies the values of arrays of given dtypes to a staging, and makes arrays of what is there.

    Parameters
    ----------
    arrays : sequence of jax.Array
        What the arrays will be like: in shape and in one dtype.

    Attributes
    ----------
    is_plain : bool
        Whether those that it has been given last are on the CPU.

    """

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        dtype = arrays[0].dtype
        self._is_cast = TABLE_DTYPES[dtype.name] != dtype
        self._dtype = dtype
        self._has_empty = any(array.size == 0 for array in arrays)
        self._has_made = False
        self._fresh: Any = None
        self._shares: bool | None = None  # whether `_copies` shares memory; None: not known
        self._shardings: list[Any] = []
        self._locate(arrays)

    def copies_of(self, arrays: Sequence[jax.Array]) -> tuple[list[jax.Array], list[int]] | None:
        """Return copies of `arrays` that nobody else has, and where they are on the CPU.

        Waits until they have been computed. None where that cannot be: if they are not of the
        table's dtype or not on the CPU. Then there is `read`.
        """
        self._locate(arrays)
        if not self.is_plain or self._is_cast or self._has_empty or self._shares:
            return None
        copies: list[jax.Array] = _copies(list(arrays))
        addresses = buffers_of(copies)
        if self._shares is None:
            # JAX may hand out one memory twice where it need not copy. It is compiled in, or not.
            others = [array.unsafe_buffer_pointer() for array in arrays]
            self._shares = len({*addresses, *others}) < len(addresses) + len(set(others))
            if self._shares:
                return None
        return copies, addresses

    def read(self, arrays: Sequence[jax.Array], staging: Staging) -> None:
        """Copy the values of `arrays` to `staging`. Waits until they have been computed."""
        self._locate(arrays)
        if not self.is_plain or self._is_cast:
            for view, array in zip(staging.views, arrays, strict=True):
                np.copyto(view, np.asarray(array), casting="same_kind")
            return
        buffers = buffers_of(arrays)
        for view, address, buffer in zip(staging.views, staging.addresses, buffers, strict=True):
            ctypes.memmove(address, buffer, view.nbytes)

    def arrays_of(self, staging: Staging) -> list[jax.Array]:
        """Return new arrays of the values in `staging`, which may change afterwards."""
        # The first time, which is the only one for most, none is compiled: of a thousand arrays
        # that takes seconds.
        if self.is_plain and self._has_made:
            if self._fresh is None:
                self._fresh = _compiled(staging, self._dtype)
            made: list[jax.Array] = jax.block_until_ready(self._fresh(staging.flat))
            return made
        self._has_made = True
        values = [np.array(view, self._dtype) for view in staging.views]
        # Where JAX puts what is new, or where they were. To name the former would tie them to it.
        return list(jax.device_put(values, None if self.is_plain else self._shardings))

    def _locate(self, arrays: Sequence[jax.Array]) -> None:
        """Note where the arrays are: memory elsewhere must not be read by its address."""
        shardings = [array.sharding for array in arrays]
        if shardings != self._shardings:
            self._shardings = shardings
            self._shares = None
            self.is_plain = _are_on_the_default_cpu(arrays)


def _copied(arrays: list[jax.Array]) -> list[jax.Array]:
    return [jnp.copy(array) for array in arrays]


_copies: Final = jax.jit(_copied)


def buffers_of(arrays: Sequence[jax.Array]) -> list[int]:
    """Return where on the CPU the values of `arrays` are. Waits until they have been computed."""
    # One by one: jax.block_until_ready takes the list for a pytree, which is a third of the whole
    # in a program that has just computed something else.
    return [array.block_until_ready().unsafe_buffer_pointer() for array in arrays]


def memory_of(array: jax.Array) -> NDArray[Any]:
    """Return the memory of an array on the CPU that nobody else has; it lives while the array does.

    JAX takes it for granted that arrays never change.
    """
    (address,) = buffers_of([array])
    return memory_at(address, array.shape, array.dtype)


def _compiled(staging: Staging, dtype: Any) -> Any:
    """Return the function that makes arrays out of `staging.flat`, which it may read in place."""
    parts = [
        (begin, view.size, view.shape)
        for begin, view in zip(staging.begins, staging.views, strict=True)
    ]

    def fresh(flat: jax.Array) -> list[jax.Array]:
        # A copy also where the part is all there is, which would be returned as it is.
        return [
            jnp.copy(flat[begin : begin + size]).reshape(shape).astype(dtype)
            for begin, size, shape in parts
        ]

    return jax.jit(fresh)


def _are_on_the_default_cpu(arrays: Sequence[jax.Array]) -> bool:
    """Tell whether what a compiled function returns is where all of them are."""
    default = jnp.zeros(()).sharding
    if next(iter(default.device_set)).platform != "cpu":
        return False
    return all(array.sharding == default for array in arrays)
