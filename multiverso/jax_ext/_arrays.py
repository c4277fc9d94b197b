"""Copies JAX arrays for the native pass, and makes new arrays of its results.

A JAX array never changes, and the program may keep it. So on the CPU the native pass works on fresh
copies, which then become the new arrays. One compiled call makes all of them, which is faster than
copying to host memory and making arrays from there. Arrays on other devices or of half precision
go through a host copy.
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
from multiverso.sync._host_copy import HostCopy


class ArrayCopier:
    """Copies arrays of one dtype, all of the shapes of the first ones, for the native pass."""

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        dtype = arrays[0].dtype
        self._is_cast = TABLE_DTYPES[dtype.name] != dtype
        self._dtype = dtype
        self._has_empty = any(array.size == 0 for array in arrays)
        self._has_made_arrays = False
        self._split: Any = None  # The compiled function of `arrays_of`.
        self._copies_share_memory: bool | None = None  # None means not known yet.
        self._place: tuple[list[Any], Any] | None = None
        self._locate(arrays)

    def copies_of(self, arrays: Sequence[jax.Array]) -> tuple[list[jax.Array], list[int]] | None:
        """Return copies of `arrays` that nothing else refers to, and their addresses on the CPU.

        Waits until the arrays have been computed. Returns None if an array is not of the table's
        dtype, has no elements or is not on the CPU, or if JAX made no real copies: use `read` then.
        """
        self._locate(arrays)
        is_unsuitable = self._is_cast or self._has_empty or self._copies_share_memory
        if is_unsuitable or not self.is_on_cpu:
            return None
        copies: list[jax.Array] = _copy_all(list(arrays))
        addresses = buffers_of(copies)
        if self._copies_share_memory is None:
            # JAX may optimize copies away. A compiled function does so either always or never.
            sources = {array.unsafe_buffer_pointer() for array in arrays}
            all_addresses = {*addresses, *sources}
            self._copies_share_memory = len(all_addresses) < len(addresses) + len(sources)
            if self._copies_share_memory:
                return None
        return copies, addresses

    def read(self, arrays: Sequence[jax.Array], host_copy: HostCopy) -> None:
        """Copy the values of `arrays` to `host_copy`, after waiting for their computation."""
        self._locate(arrays)
        if not self.is_on_cpu or self._is_cast:
            for view, array in zip(host_copy.views, arrays, strict=True):
                np.copyto(view, np.asarray(array), casting="same_kind")
            return
        buffers = buffers_of(arrays)
        for view, address, buffer in zip(
            host_copy.views, host_copy.addresses, buffers, strict=True
        ):
            ctypes.memmove(address, buffer, view.nbytes)

    def arrays_of(self, host_copy: HostCopy) -> list[jax.Array]:
        """Return new arrays of the values in `host_copy`, which the caller may then change."""
        # Compiling takes seconds for a thousand arrays, and most arrays are made only once.
        if self.is_on_cpu and self._has_made_arrays:
            if self._split is None:
                self._split = _compiled_split(host_copy, self._dtype)
            arrays: list[jax.Array] = jax.block_until_ready(self._split(host_copy.flat))
            return arrays
        self._has_made_arrays = True
        values = [np.array(view, self._dtype) for view in host_copy.views]
        return list(jax.device_put(values, self._targets))

    def _locate(self, arrays: Sequence[jax.Array]) -> None:
        """Update `is_on_cpu`, since a program may change the default device at any time."""
        place = [array.sharding for array in arrays], jax.config.jax_default_device
        if place != self._place:
            self._place = place
            self._copies_share_memory = None
            default = jnp.zeros(()).sharding
            # An explicit sharding would commit arrays on the default device to that device.
            self._targets = [None if sharding == default else sharding for sharding in place[0]]
            is_cpu = next(iter(default.device_set)).platform == "cpu"
            self.is_on_cpu = is_cpu and all(target is None for target in self._targets)


_copy_all: Final = jax.jit(lambda arrays: [jnp.copy(array) for array in arrays])


def buffers_of(arrays: Sequence[jax.Array]) -> list[int]:
    """Return the addresses of `arrays` on the CPU, after waiting for their computation."""
    # jax.block_until_ready would flatten the list as a pytree, which takes a third of a sync.
    return [array.block_until_ready().unsafe_buffer_pointer() for array in arrays]


def memory_of(array: jax.Array) -> NDArray[Any]:
    """Return the memory of an array on the CPU, to be written if nothing else refers to it."""
    (address,) = buffers_of([array])
    return memory_at(address, array.shape, array.dtype)


def _compiled_split(host_copy: HostCopy, dtype: Any) -> Any:
    """Return a compiled function that makes the arrays of `host_copy` from `host_copy.flat`."""
    parts = [
        (begin, view.size, view.shape)
        for begin, view in zip(host_copy.begins, host_copy.views, strict=True)
    ]

    def split(flat: jax.Array) -> list[jax.Array]:
        # Without the copy, a part that is the whole of `flat` would be `flat` itself.
        return [
            jnp.copy(flat[begin : begin + size]).reshape(shape).astype(dtype)
            for begin, size, shape in parts
        ]

    return jax.jit(split)
