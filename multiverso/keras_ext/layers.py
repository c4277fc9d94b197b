"""Keras layers whose weights are rows of a table of Multiverso.

The rows are no weights of the model: the optimizer, ``save_weights`` and `MVCallback`'s sync do not
see them. A layer gets the rows of a batch from the table and collects their gradients, which
`MVCallback` sends after each step; the table's updater is the optimizer of the rows.
"""

import importlib
import math
from typing import Any, Final

import keras

from multiverso.sync._row_gradients import RowGradients, RowLayer, RowTable
from multiverso.tables import MatrixTableHandler

__all__ = ["Embedding", "layers_of"]

#: The module of each backend, which imports its framework.
_MODULES: Final = {
    "jax": "multiverso.jax_ext._rows",
    "tensorflow": "multiverso.keras_ext._tensorflow_rows",
    "torch": "multiverso.keras_ext._torch_rows",
}

#: Each dtype of floats represents the integers up to this number; ids that are floats become int32.
_EXACT: Final = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24, "float64": 2**31 - 1}


@keras.saving.register_keras_serializable("multiverso")
class Embedding(RowLayer, keras.layers.Layer):  # type: ignore[misc]
    """`keras.layers.Embedding` with its rows in a table.

    It works in ``fit``, on all backends. The layer has one weight of a single zero, ``connection``:
    frameworks compute gradients of weights only, so the layer appears to depend on one. A layer
    with ``trainable=False``, and calls with ``training=False``, only read the rows.

    Parameters
    ----------
    table : MatrixTableHandler or HashTableHandler
        A table of floating-point numbers whose updater takes gradients. Keys of a hash table get
        rows in training only.
    mask_zero : bool, optional
        Whether id 0 is padding, for later layers that use masks.
    **options : optional
        Options of every Keras layer: ``name``, ``dtype``, ``trainable``.

    Raises
    ------
    TypeError, ValueError
        If the table is something else.

    """

    def __init__(self, table: RowTable, mask_zero: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.autocast = False  # A policy such as "mixed_bfloat16" must not round ids.
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self._gradients = RowGradients(table)
        backend = keras.backend.backend()
        self.supports_jit = backend != "tensorflow"  # XLA there cannot call Python functions.
        module = importlib.import_module(_MODULES[backend])
        self._look_up = module.look_up_with(self._gradients, insert=True)
        self._read = module.look_up_with(self._gradients, insert=False)
        self._wait = module.wait_for_gradients

    @property
    def table(self) -> RowTable:
        """The table."""
        return self._gradients.table

    @property
    def output_dim(self) -> int:
        """The number of columns of the table."""
        return self.table.num_col

    def build(self, input_shape: Any = None) -> None:
        """Create the weight that connects the rows with the trainer."""
        self._connection = self.add_weight(
            shape=(), initializer="zeros", dtype="float32", name="connection"
        )
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the rows of the ids `inputs`, of shape (*inputs.shape, output_dim)."""
        ids = keras.ops.convert_to_tensor(inputs)
        self._require_exact(keras.backend.standardize_dtype(ids.dtype))
        if not keras.backend.is_int_dtype(ids.dtype):
            ids = keras.ops.cast(ids, "int32")
        connection = keras.ops.convert_to_tensor(self._connection)
        if training is False or not self.trainable:
            rows = self._read(keras.ops.stop_gradient(connection), ids)
        else:
            rows = self._look_up(connection, ids)
        return keras.ops.cast(rows, self.compute_dtype)

    def _require_exact(self, dtype: str) -> None:
        """Raise TypeError if ids of the dtype are bools, or floats that round some of the ids."""
        if dtype == "bool":
            msg = "ids: expected integers, received bool"
            raise TypeError(msg)
        exact = _EXACT.get(dtype)
        rows = self.table.num_row if isinstance(self.table, MatrixTableHandler) else math.inf
        if exact is not None and rows > exact + 1:
            msg = (
                f"ids: expected integers, received {dtype}, which rounds ids above {exact}; start "
                f"the model with keras.Input(shape, dtype='int32') or 'int64'"
            )
            raise TypeError(msg)

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the shape and the dtype of the output, without a call of the table."""
        self._require_exact(keras.backend.standardize_dtype(inputs.dtype))
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of the output."""
        return (*input_shape, self.output_dim)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return which ids are not 0, with ``mask_zero=True``."""
        return keras.ops.not_equal(inputs, 0) if self.mask_zero else None

    def _settle(self, scale: float = 1.0) -> float:
        self._wait()
        return scale

    def unscale(self, scale: float | None) -> bool:
        """Divide the gradients of one batch by its scale, where `step` sends those of several.

        Parameters
        ----------
        scale : float or None
            The factor of the loss in the batches since the last call; None drops their gradients.

        Returns
        -------
        bool
            False if the gradients are dropped, also because one is not finite.

        """
        self._wait()
        return self._gradients.unscale(scale)

    def get_config(self) -> dict[str, Any]:
        """Return the options of the layer and the name of its table."""
        return {**super().get_config(), "table": self.table.name, "mask_zero": self.mask_zero}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Embedding":
        """Create the layer from `get_config`, with a table in place of its name."""
        if not isinstance(config["table"], RowTable):
            msg = (
                f"a file cannot contain the table {config['table']!r}: build the model with its "
                f"tables in the program, and read the other weights with load_weights"
            )
            raise TypeError(msg)
        return cls(**config)


def layers_of(model: Any) -> list[Embedding]:
    """Return the layers of a model that have their rows in a table."""
    flatten = getattr(model, "_flatten_layers", None)
    layers = [model] if flatten is None else flatten(include_self=True, recursive=True)
    return [layer for layer in layers if isinstance(layer, Embedding)]
