"""Arrays of JAX on the way to a staging and back.

An array of JAX never changes, and others may hold it. So its values are read where they are, and
new arrays are made of what the native pass leaves: by one compiled call for all of them.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from multiverso._staging import Staging

#: The dtype of an array, and of its table: half precision is summed up in single precision.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}


class ArrayCopier:
    """Copies the values of arrays of given dtypes to a staging, and makes arrays of what is there.

    Parameters
    ----------
    arrays : sequence of jax.Array
        What the arrays will be like: in shape, in one dtype, and in where they are.

    """

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        dtype = arrays[0].dtype
        self._is_cast = DTYPES[dtype.name] != dtype
        self._is_plain = _are_on_the_default_cpu(arrays)
        self._shardings = [array.sharding for array in arrays]

        def fresh(values: list[NDArray[Any]]) -> list[jax.Array]:
            # Copies: what is passed shares its memory with the staging.
            return [jnp.copy(jnp.asarray(value).astype(dtype)) for value in values]

        self._fresh = jax.jit(fresh)
        self._dtype = dtype

    def read(self, arrays: Sequence[jax.Array], staging: Staging) -> None:
        """Copy the values of `arrays` to `staging`. Waits until they have been computed."""
        jax.block_until_ready(arrays)
        if not self._is_plain or self._is_cast:
            for view, array in zip(staging.views, arrays, strict=True):
                np.copyto(view, np.asarray(array), casting="same_kind")
            return
        for view, address, array in zip(staging.views, staging.addresses, arrays, strict=True):
            ctypes.memmove(address, array.unsafe_buffer_pointer(), view.nbytes)

    def arrays_of(self, staging: Staging) -> list[jax.Array]:
        """Return new arrays of the values in `staging`, which may change afterwards."""
        if self._is_plain:
            made: list[jax.Array] = jax.block_until_ready(self._fresh(staging.views))
            return made
        values = [np.array(view, self._dtype) for view in staging.views]
        return list(jax.device_put(values, self._shardings))


def _are_on_the_default_cpu(arrays: Sequence[jax.Array]) -> bool:
    """Tell whether what a compiled function returns is where all of them are."""
    default = jnp.zeros(()).sharding
    if next(iter(default.device_set)).platform != "cpu":
        return False
    return all(array.sharding == default for array in arrays)
