"""Rows of a table in a graph of TensorFlow, for `multiverso.keras_ext.layers`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from multiverso.sync._row_gradients import RowGradients


def look_up_with(gradients: RowGradients, insert: bool) -> Callable[[Any, Any], Any]:
    """Return look_up(connection, ids): rows, whose gradients `gradients` collects.

    With `insert`, keys of a hash table get a row.
    """
    table = gradients.table
    dtype = tf.dtypes.as_dtype(table.value_dtype)

    def collect(ids: Any, row_gradients: Any) -> Any:
        # TensorFlow may use the memory again after the call.
        gradients.collect(np.array(ids), np.array(row_gradients))
        # A scaler of the loss sees only this number.
        return np.float32(0.0 if np.isfinite(row_gradients).all() else np.nan)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def look_up(connection: Any, ids: Any) -> Any:
        rows = tf.numpy_function(lambda ids: gradients.rows_of(ids, insert), [ids], dtype)
        rows.set_shape([*ids.shape, table.num_col])

        def backward(row_gradients: Any) -> tuple[Any, None]:
            # The result is the gradient of the connection, so that it must be computed.
            result = tf.numpy_function(collect, [ids, row_gradients], tf.float32)
            return tf.reshape(result, []), None

        return rows, backward

    return look_up  # type: ignore[no-any-return]


def wait_for_gradients() -> None:
    """Return at once: a step of the trainer ends after its gradients."""
