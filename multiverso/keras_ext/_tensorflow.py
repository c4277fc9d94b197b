"""Weights of Keras on TensorFlow: read and written by one compiled call for all of them.

A call of TensorFlow for each weight would take longer than the rest of a sync.
"""

from typing import Any, Final

import numpy as np
import tensorflow as tf

from multiverso._staging import StagedGroup, Staging
from multiverso._tensors import Tensor
from multiverso.keras_ext._variables import Access, grouped

_DTYPES = {
    "float32": "float32",
    "float64": "float64",
    "float16": "float32",
    "bfloat16": "float32",
    "int32": "int32",
    "int64": "int64",
}

#: Bytes: of a tensor's memory, for TensorFlow to work on it in place.
_ALIGNMENT: Final = 64


class _Store:
    """Variables of one dtype, all with elements."""

    is_dense = True

    def __init__(self, variables: list[Any], dtype: str) -> None:
        sizes = [int(np.prod(variable.shape)) for variable in variables]
        own = variables[0].dtype
        starts = np.cumsum([0, *sizes[:-1]]) * np.dtype(dtype).itemsize
        self._are_local = all("CPU" in variable.device for variable in variables)

        def join() -> Any:
            return tf.concat([tf.reshape(tf.cast(v, dtype), [-1]) for v in variables], 0)

        def split(flat: Any) -> None:
            for variable, start, part in zip(variables, starts, tf.split(flat, sizes), strict=True):
                # A part that is aligned may be no copy, but a view of what was given.
                if start % _ALIGNMENT == 0:
                    part = tf.raw_ops.Snapshot(input=part)
                value = tf.reshape(tf.cast(part, own), variable.shape)
                variable.assign(value, read_value=False)

        spec = tf.TensorSpec([sum(sizes)], dtype)
        self._join = tf.function(join).get_concrete_function()
        self._split = tf.function(split, input_signature=[spec]).get_concrete_function()

    def read(self, staging: Staging) -> None:
        """Copy the values there."""
        np.copyto(staging.flat, np.asarray(self._join()))

    def write(self, staging: Staging) -> None:
        """Set the variables."""
        # tf.constant copies twice. Without it what is not done yet would read what comes next.
        if self._are_local and tf.config.experimental.get_synchronous_execution():
            self._split(tf.experimental.dlpack.from_dlpack(staging.flat.__dlpack__()))
        else:
            self._split(tf.constant(staging.flat))

    def expose(self) -> None:
        """Return None: nothing can be worked on in place."""

    def accept(self) -> None:
        """Do nothing, see `expose`."""


def tensors_of(access: Access, variables: list[Any], shares: list[float]) -> list[Tensor]:
    """Return the tensors of those `variables` that have elements."""
    tensors: dict[int, Tensor] = {}
    for (dtype, share), places in grouped(variables, shares).items():
        chosen = [variables[place].value for place in places]
        group = StagedGroup(
            _Store(chosen, _DTYPES[dtype]),
            [tuple(variable.shape) for variable in chosen],
            np.dtype(_DTYPES[dtype]),
            is_exact=_DTYPES[dtype] == dtype,
            share=share,
        )
        tensors |= zip(places, group.tensors, strict=True)
    return [tensor for _, tensor in sorted(tensors.items())]
