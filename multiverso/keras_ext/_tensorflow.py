"""Weights of Keras on TensorFlow, and rows of a table in its graphs.

One compiled call reads or writes all weights; a call for each weight would take longer than the
rest of a sync. Until a variable changes, it shares its memory with the tensors that were read from
it. So on the CPU the call gives each variable memory of its own, which the native pass changes in
place. On other devices the values go through a host copy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from multiverso._native.arrays import address, memory_at
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.keras_ext._variables import ModelWeights, variable_dtype
from multiverso.sync._host_copy import HostCopy, Store, host_copy_tensors
from multiverso.sync._row_gradients import RowGradients
from multiverso.sync._table_copy import Share
from multiverso.sync._tensor import Tensor


class _HostStore:
    """The store of variables in CPU memory, of their table's dtype and with elements."""

    is_dense = False

    def __init__(self, variables: list[Any]) -> None:
        self._variables = variables
        self._held: list[Any] = []
        self._own_memory = _compiled(lambda: [_with_own_memory(variable) for variable in variables])

    def is_possible(self) -> bool:
        """Return whether writing to the memory from `_own_memory` changes only the variables."""
        # `earlier_values` keeps the memory before, so that no variable can get it again.
        earlier_values = [variable.read_value() for variable in self._variables]
        earlier = {*_addresses_of(earlier_values)}
        own = _addresses_of(self._own_memory())
        current = _addresses_of([variable.read_value() for variable in self._variables])
        return own == current and len({*own}) == len(own) and earlier.isdisjoint(own)

    def read(self, host_copy: HostCopy) -> None:
        """Copy the values to `host_copy`."""
        for variable, view in zip(self._variables, host_copy.views, strict=True):
            np.copyto(view, np.asarray(variable.read_value()))

    def write(self, host_copy: HostCopy) -> None:
        """Set the variables to `host_copy`."""
        for tensor, view in zip(self._own_memory(), host_copy.views, strict=True):
            values = np.asarray(tensor)
            np.copyto(memory_at(address(values), values.shape, values.dtype), view)

    def expose(self) -> list[int]:
        """Return the addresses of the values."""
        self._held = self._own_memory()
        return _addresses_of(self._held)

    def accept(self) -> None:
        """Release the references to the memory."""
        self._held = []


def _with_own_memory(variable: Any) -> Any:
    """Return the value of a variable after moving it to memory that nothing else uses."""
    handle, dtype, shape = variable.handle, variable.dtype, variable.shape
    operations = tf.raw_ops
    if shape.rank:
        # TensorFlow gives a variable its own memory before an update, even one of no elements.
        no_indices = tf.zeros([0], tf.int32)
        operations.ResourceScatterUpdate(
            resource=handle, indices=no_indices, updates=tf.zeros([], dtype)
        )
    # The update has enabled copies on each read and assignment, but `value` must not be a copy.
    operations.DisableCopyOnRead(resource=handle)
    value = operations.ReadVariableOp(resource=handle, dtype=dtype)
    if not shape.rank:  # A scalar has no elements to update.
        value = operations.DeepCopy(x=value)
        operations.AssignVariableOp(resource=handle, value=value)
    return value


class _DeviceStore:
    """The store of variables of one dtype, with elements, on any device."""

    is_dense = True

    def __init__(self, variables: list[Any], dtype: str) -> None:
        sizes = [int(np.prod(variable.shape)) for variable in variables]

        def join() -> Any:
            return tf.concat([tf.reshape(tf.cast(v, dtype), [-1]) for v in variables], 0)

        def split(flat: Any) -> None:
            for variable, part in zip(variables, tf.split(flat, sizes), strict=True):
                value = tf.reshape(tf.cast(part, variables[0].dtype), variable.shape)
                variable.assign(value, read_value=False)

        self._join = _compiled(join)
        self._split = _compiled(split, tf.TensorSpec([sum(sizes)], dtype))

    def read(self, host_copy: HostCopy) -> None:
        """Copy the values to `host_copy`."""
        (flat,) = self._join()
        np.copyto(host_copy.flat, np.asarray(flat))

    def write(self, host_copy: HostCopy) -> None:
        """Set the variables to `host_copy`."""
        self._split(tf.constant(host_copy.flat))

    def expose(self) -> None:
        """Return None: the native pass cannot change the variables in place."""

    def accept(self) -> None:
        """Do nothing: `expose` returns no addresses."""


def _compiled(function: Callable[..., Any], *specs: Any) -> Callable[..., list[Any]]:
    """Return `function` as a compiled operation, which starts faster than a concrete function."""
    compiled = tf.function(function, specs, autograph=False).get_concrete_function()
    captured = list(compiled.captured_inputs)
    dtypes = [output.dtype for output in compiled.outputs]
    call = tf.raw_ops.StatefulPartitionedCall
    return lambda *arguments: call(args=[*arguments, *captured], Tout=dtypes, f=compiled)


def _addresses_of(tensors: list[Any]) -> list[int]:
    """Return the addresses of the values on the CPU, after waiting for their computation."""
    return [np.asarray(tensor).ctypes.data for tensor in tensors]


def train_step_of(model: Any, keeps_weights: bool) -> Callable[[Any], Any]:
    """Return a function that trains `model` on a batch; see `_training.train_step_of`."""
    if model.run_eagerly:
        return model.train_step  # type: ignore[no-any-return]
    jit = bool(model.jit_compile) and model.jit_compile != "auto"
    return tf.function(model.train_step, reduce_retracing=True, jit_compile=jit)  # type: ignore[no-any-return]


def store_of(weights: ModelWeights, variables: list[Any]) -> Store:
    """Return a store of variables of one dtype that are all read or written in each step."""
    dtype = TABLE_DTYPES[variable_dtype(variables[0])].name
    return _DeviceStore([variable.value for variable in variables], dtype)


def _store_of(variables: list[Any]) -> Store:
    """Return the fastest store for these variables of TensorFlow."""
    dtype = TABLE_DTYPES[variables[0].dtype.name].name
    # The variables of a distribution strategy have several devices, or several copies on one.
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


def tensors_of(weights: ModelWeights, variables: list[Any], shares: list[Share]) -> list[Tensor]:
    """Return the tensors of `variables`."""
    values = [variable.value for variable in variables]
    return host_copy_tensors(
        [tuple(value.shape) for value in values],
        [variable_dtype(variable) for variable in variables],
        shares,
        lambda indices: _store_of([values[index] for index in indices]),
    )


def look_up_with(gradients: RowGradients, insert: bool) -> Callable[[Any, Any], Any]:
    """Return look_up(connection, ids), whose rows' gradients are collected; `insert` adds keys."""
    dtype = tf.dtypes.as_dtype(gradients.dtype)

    def collect(ids: Any, row_gradients: Any) -> Any:
        # TensorFlow may use the memory again after the call.
        gradients.collect(np.array(ids), np.array(row_gradients))
        # A scaler of the loss sees only this number.
        return np.float32(0.0 if np.isfinite(row_gradients).all() else np.nan)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def look_up(connection: Any, ids: Any) -> Any:
        rows = tf.numpy_function(lambda ids: gradients.rows_of(ids, insert), [ids], dtype)
        rows.set_shape([*ids.shape, gradients.num_col])

        def backward(row_gradients: Any) -> tuple[Any, None]:
            gradients.require_training()  # Errors of the call below are wrapped.
            # The result is the gradient of the connection, so that it must be computed.
            result = tf.numpy_function(collect, [ids, row_gradients], tf.float32)
            return tf.reshape(result, []), None

        return rows, backward

    return look_up  # type: ignore[no-any-return]


def wait_for_gradients() -> None:
    """Return at once: a step of the trainer ends after its gradients."""
