"""Weights of Keras on TensorFlow: one compiled call for all of them.

A call of TensorFlow for each weight would take longer than the rest of a sync.

A variable shares its memory with whoever has read it, until it changes. So on the CPU the call sees
to it that each has its own, and the native pass works on that, in place, before anybody else reads
it. Elsewhere the values go through a staging.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from multiverso._native.arrays import address, memory_at
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.keras_ext._variables import Access, variable_dtype
from multiverso.sync._staging import Staging, Store, staged_tensors
from multiverso.sync._tensor import Tensor


class _HostStore:
    """Variables of their table's dtype, all with elements, in the memory of the CPU."""

    is_dense = False

    def __init__(self, variables: list[Any]) -> None:
        self._variables = variables
        self._held: list[Any] = []
        self._own = _called(lambda: [_made_own(variable) for variable in variables])

    def is_possible(self) -> bool:
        """Tell whether what is written to the memory of their own changes them, and only them."""
        seen = [variable.read_value() for variable in self._variables]
        taken = {*_addresses_of(seen)}
        own = _addresses_of(self._own())
        now = _addresses_of([variable.read_value() for variable in self._variables])
        return own == now and len({*own}) == len(own) and taken.isdisjoint(own)

    def read(self, staging: Staging) -> None:
        """Copy the values there."""
        for variable, view in zip(self._variables, staging.views, strict=True):
            np.copyto(view, np.asarray(variable.read_value()))

    def write(self, staging: Staging) -> None:
        """Set the variables."""
        for tensor, view in zip(self._own(), staging.views, strict=True):
            values = np.asarray(tensor)
            np.copyto(memory_at(address(values), values.shape, values.dtype), view)

    def expose(self) -> list[int]:
        """Return where the values are."""
        self._held = self._own()
        return _addresses_of(self._held)

    def accept(self) -> None:
        """Leave the memory to the variables."""
        self._held = []


def _made_own(variable: Any) -> Any:
    """Return the value of a variable, in memory that no other tensor or variable has any more."""
    at, dtype, rank = variable.handle, variable.dtype, variable.shape.rank
    operations = tf.raw_ops
    if rank:
        # Nothing is changed; but before parts of a variable are, it gets memory of its own.
        none = tf.zeros([0], tf.int32)
        operations.ResourceScatterUpdate(resource=at, indices=none, updates=tf.zeros([], dtype))
    # From then on it would copy what is read from it, or assigned to it.
    operations.DisableCopyOnRead(resource=at)
    value = operations.ReadVariableOp(resource=at, dtype=dtype)
    if not rank:  # has no parts
        value = operations.DeepCopy(x=value)
        operations.AssignVariableOp(resource=at, value=value)
    return value


class _DeviceStore:
    """Variables of one dtype, all with elements, wherever they are."""

    is_dense = True

    def __init__(self, variables: list[Any], dtype: str) -> None:
        sizes = [int(np.prod(variable.shape)) for variable in variables]
        own = variables[0].dtype

        def join() -> Any:
            return tf.concat([tf.reshape(tf.cast(v, dtype), [-1]) for v in variables], 0)

        def split(flat: Any) -> None:
            for variable, part in zip(variables, tf.split(flat, sizes), strict=True):
                value = tf.reshape(tf.cast(part, own), variable.shape)
                variable.assign(value, read_value=False)

        self._join = _called(join)
        self._split = _called(split, tf.TensorSpec([sum(sizes)], dtype))

    def read(self, staging: Staging) -> None:
        """Copy the values there."""
        (flat,) = self._join()
        np.copyto(staging.flat, np.asarray(flat))

    def write(self, staging: Staging) -> None:
        """Set the variables."""
        self._split(tf.constant(staging.flat))

    def expose(self) -> None:
        """Return None: nothing can be worked on in place."""

    def accept(self) -> None:
        """Do nothing, see `expose`."""


def _called(function: Callable[..., Any], *specs: Any) -> Callable[..., list[Any]]:
    """Return a compiled `function` of tensors, as an operation that returns a list of tensors.

    What Python does otherwise around the call of a compiled function takes longer than the call.
    """
    compiled = tf.function(function, specs, autograph=False).get_concrete_function()
    captured = list(compiled.captured_inputs)
    dtypes = [output.dtype for output in compiled.outputs]
    call = tf.raw_ops.StatefulPartitionedCall
    return lambda *given: call(args=[*given, *captured], Tout=dtypes, f=compiled)


def _addresses_of(tensors: list[Any]) -> list[int]:
    """Return where on the CPU the values are. Waits until they have been computed."""
    return [np.asarray(tensor).ctypes.data for tensor in tensors]


def _store_of(variables: list[Any]) -> Store:
    """Return the fastest store for these variables."""
    dtype = TABLE_DTYPES[variables[0].dtype.name].name
    # Those of a distribution strategy are on several devices, or in several copies on one.
    if all(
        variable.dtype == dtype
        and "CPU" in variable.device
        and not isinstance(variable, tf.distribute.DistributedValues)
        for variable in variables
    ):
        store = _HostStore(variables)
        if store.is_possible():
            return store
    return _DeviceStore(variables, dtype)


def tensors_of(access: Access, variables: list[Any], shares: list[float]) -> list[Tensor]:
    """Return the tensors of `variables`."""
    values = [variable.value for variable in variables]
    return staged_tensors(
        [tuple(value.shape) for value in values],
        [variable_dtype(variable) for variable in variables],
        shares,
        lambda places: _store_of([values[place] for place in places]),
    )
