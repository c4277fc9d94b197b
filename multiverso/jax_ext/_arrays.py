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

    Attributes
    ----------
    is_plain : bool
        Whether they are on the CPU.

    """

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        dtype = arrays[0].dtype
        self._is_cast = DTYPES[dtype.name] != dtype
        self.is_plain = _are_on_the_default_cpu(arrays)
        self._shardings = [array.sharding for array in arrays]
        self._dtype = dtype
        self._fresh: Any = None

    def read(self, arrays: Sequence[jax.Array], staging: Staging) -> None:
        """Copy the values of `arrays` to `staging`. Waits until they have been computed."""
        if not self.is_plain or self._is_cast:
            for view, array in zip(staging.views, arrays, strict=True):
                np.copyto(view, np.asarray(array), casting="same_kind")
            return
        buffers = buffers_of(arrays)
        for view, address, buffer in zip(staging.views, staging.addresses, buffers, strict=True):
            ctypes.memmove(address, buffer, view.nbytes)

    def arrays_of(self, staging: Staging) -> list[jax.Array]:
        """Return new arrays of the values in `staging`, which may change afterwards."""
        if self.is_plain:
            if self._fresh is None:
                self._fresh = _compiled(staging, self._dtype)
            made: list[jax.Array] = jax.block_until_ready(self._fresh(staging.flat))
            return made
        values = [np.array(view, self._dtype) for view in staging.views]
        return list(jax.device_put(values, self._shardings))


def buffers_of(arrays: Sequence[jax.Array]) -> list[int]:
    """Return where on the CPU the values of `arrays` are. Waits until they have been computed."""
    jax.block_until_ready(arrays)
    return [array.unsafe_buffer_pointer() for array in arrays]


def memory_of(array: jax.Array) -> NDArray[Any]:
    """Return the memory of an array on the CPU that nobody else has; it lives while the array does.

    JAX takes it for granted that arrays never change.
    """
    (address,) = buffers_of([array])
    raw = (ctypes.c_char * array.nbytes).from_address(address)
    return np.frombuffer(raw, array.dtype).reshape(array.shape)


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
