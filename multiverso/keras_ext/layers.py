"""Keras layers whose weights are rows of a table of Multiverso.

The rows are no weights of the model: the optimizer, ``save_weights`` and `MVCallback`'s sync do not
see them. A layer gets the rows of a batch from the table and collects their gradients, which
`MVCallback` sends after each step; the table's updater is the optimizer of the rows.
"""

import warnings
from typing import Any, Final

import keras

from multiverso._native.arguments import choice, flag
from multiverso._native.arrays import native_order
from multiverso.keras_ext._variables import backend_module
from multiverso.sync._row_gradients import RowGradients, RowLayer, RowTable

__all__ = ["Embedding", "layers_of"]

#: Each dtype of floats represents the integers up to this number; ids that are floats become int32.
_EXACT: Final = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24, "float64": 2**31 - 1}


_COMBINERS: Final = ("sum", "mean", "sqrtn")

#: What to do instead of options of `keras.layers.Embedding` that the layer does not have.
_INSTEAD: Final = {
    **dict.fromkeys(("input_dim", "output_dim"), "the table has the number of rows and columns"),
    **dict.fromkeys(
        ("weights", "embeddings_initializer"),
        "the table has the rows: create it with an array, or with an initializer of "
        "multiverso.initializers",
    ),
    **dict.fromkeys(
        ("embeddings_regularizer", "embeddings_constraint"),
        "the table's updater changes the rows; it has weight_decay, clipnorm and clipvalue",
    ),
    **dict.fromkeys(
        ("lora_rank", "lora_alpha", "quantization_config"),
        "the rows are not a weight of the model; a table of dtype='bfloat16' takes half the memory",
    ),
}


class _TableName(str):
    """The name of a table in a layer's config, with the table, so that a clone has the same one."""

    table: RowTable

    def __new__(cls, table: RowTable) -> "_TableName":
        name = super().__new__(cls, table.name)
        name.table = table
        return name

    def __deepcopy__(self, memo: Any) -> "_TableName":
        return self


@keras.saving.register_keras_serializable("multiverso")
class Embedding(RowLayer, keras.layers.Layer):  # type: ignore[misc]
    """`keras.layers.Embedding` with its rows in a table.

    It works in ``fit``, on all backends. The layer has one weight of a single zero, ``connection``:
    frameworks compute gradients of weights only, so the layer appears to depend on one. A layer
    with ``trainable=False``, and calls with ``training=False``, only read the rows.

    Parameters
    ----------
    table : MatrixTable or HashTable
        A table of floating-point numbers whose updater takes gradients, or one of the ``tables`` of
        `multiverso.attach` or `multiverso.follow`, whose rows are read and not trained. Keys of a
        hash table get rows in training only.
    mask_zero : bool, optional
        Whether id 0 is padding, for later layers that use masks, and for the combiner.
    combiner : {None, "sum", "mean", "sqrtn"}, optional
        How the rows along the last dimension of the ids become one: by their sum, which "mean"
        divides by the sum of their weights, and "sqrtn" by the root of the sum of the squared
        weights. Padding has no weight. By default, the result has a row for each id.
    **options : optional
        Options of every Keras layer: ``name``, ``dtype``, ``trainable``.

    Examples
    --------
    >>> import keras
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from multiverso.keras_ext.layers import Embedding
    >>> with mv.session():
    ...     table = mv.MatrixTable(1000, 4, updater="sgd")
    ...     model = keras.Sequential([keras.Input((3,), dtype="int32"), Embedding(table)])
    ...     model.predict(np.array([[1, 7, 7]]), verbose=0).shape
    (1, 3, 4)

    """

    def __init__(
        self,
        table: RowTable,
        mask_zero: bool = False,
        combiner: str | None = None,
        **options: Any,
    ) -> None:
        for option in options:
            if option in _INSTEAD:
                raise TypeError(f"Embedding: expected no {option}, since {_INSTEAD[option]}")
        gradients = RowGradients(table)
        mask_zero = flag(mask_zero, "mask_zero")
        super().__init__(**options)
        if combiner is not None:
            choice(combiner, "combiner", _COMBINERS)
        self.combiner = combiner
        self.autocast = False  # A policy such as "mixed_bfloat16" must not round ids.
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero and combiner is None
        self._gradients = gradients
        # XLA on TensorFlow cannot call Python functions.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        module = backend_module()
        self._look_up = module.look_up_with(self._gradients, insert=True)
        self._read = module.look_up_with(self._gradients, insert=False)
        self._wait = module.wait_for_gradients

    @property
    def output_dim(self) -> int:
        """The number of columns of the table."""
        return self._gradients.num_col

    def __call__(self, inputs: Any, *args: Any, **options: Any) -> Any:
        """Return the rows of `inputs`, as `call`; ids may be in the other order of bytes."""
        return super().__call__(native_order(inputs), *args, **options)

    def build(self, input_shape: Any = None) -> None:
        """Create the weight that connects the rows with the trainer."""
        self._connection = self.add_weight(
            shape=(), initializer="zeros", dtype="float32", name="connection"
        )
        self.built = True

    def call(self, inputs: Any, training: bool | None = None, weights: Any = None) -> Any:
        """Return the rows of the ids `inputs`, of shape (*inputs.shape, output_dim).

        With a combiner the shape is (*inputs.shape[:-1], output_dim), and `weights`, of the shape
        of the ids, are the weights of their rows.
        """
        self._require_dense(inputs)
        self._require_combiner(weights)
        ids = keras.ops.convert_to_tensor(inputs)
        self._require_exact(keras.backend.standardize_dtype(ids.dtype))
        if not keras.backend.is_int_dtype(ids.dtype):
            ids = keras.ops.cast(ids, "int32")
        connection = keras.ops.convert_to_tensor(self._connection)
        if training is False or not self.trainable:
            rows = self._read(keras.ops.stop_gradient(connection), ids)
        else:
            rows = self._look_up(connection, ids)
        if self.combiner is not None:
            rows = self._combined(rows, ids, weights)
        return keras.ops.cast(rows, self.compute_dtype)

    def _combined(self, rows: Any, ids: Any, weights: Any) -> Any:
        """Return the weighted sum or mean of the rows along the last dimension of the ids."""
        dtype = keras.backend.standardize_dtype(rows.dtype)
        factors = keras.ops.ones_like(ids, dtype)
        if weights is not None:
            factors = keras.ops.cast(keras.ops.convert_to_tensor(weights), dtype)
        if self.mask_zero:
            factors = factors * keras.ops.cast(keras.ops.not_equal(ids, 0), dtype)
        total = keras.ops.sum(rows * keras.ops.expand_dims(factors, -1), axis=-2)
        if self.combiner == "sum":
            return total
        if self.combiner == "mean":
            divisor = keras.ops.sum(factors, axis=-1, keepdims=True)
        else:
            squares = keras.ops.sum(keras.ops.square(factors), axis=-1, keepdims=True)
            # The gradient of a root of 0 is not finite.
            is_empty = keras.ops.equal(squares, 0)
            root = keras.ops.sqrt(keras.ops.where(is_empty, 1.0, squares))
            divisor = keras.ops.where(is_empty, 0.0, root)
        return keras.ops.divide_no_nan(total, divisor)

    def _require_dense(self, inputs: Any) -> None:
        kind = type(inputs).__name__
        if kind in ("SparseTensor", "RaggedTensor", "RaggedTensorValue", "BCOO") or any(
            getattr(inputs, name, False) is True for name in ("sparse", "ragged")
        ):
            raise TypeError(
                f"ids: expected a dense array or tensor, received a {kind}; pad the ids with 0 and "
                f"set mask_zero=True"
            )

    def _require_combiner(self, weights: Any) -> None:
        if weights is not None and self.combiner is None:
            raise ValueError("weights: expected None without a combiner, since each id has a row")

    def _require_exact(self, dtype: str) -> None:
        """Raise TypeError if ids of the dtype are bools, or floats that round some of the ids."""
        if dtype == "bool":
            raise TypeError("ids: expected integers, received bool")
        exact = _EXACT.get(dtype)
        rows = self._gradients.num_row
        if exact is not None and (rows is None or rows > exact + 1):
            raise TypeError(
                f"ids: expected integers, received {dtype}, which rounds ids above {exact}; start "
                f"the model with keras.Input(shape, dtype='int32') or 'int64'"
            )

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None, weights: Any = None
    ) -> Any:
        """Return the shape and the dtype of the output, without a call of the table."""
        self._require_dense(inputs)
        self._require_combiner(weights)
        self._require_exact(keras.backend.standardize_dtype(inputs.dtype))
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Return the shape of the output."""
        if self.combiner is None:
            return (*input_shape, self.output_dim)
        if not input_shape:
            msg = f"ids: expected a dimension to combine with {self.combiner!r}, received one id"
            raise ValueError(msg)
        return (*input_shape[:-1], self.output_dim)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return which ids are not 0, with ``mask_zero=True``."""
        return keras.ops.not_equal(inputs, 0) if self.supports_masking else None

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
        return {
            **super().get_config(),
            "table": _TableName(self.table),
            "mask_zero": self.mask_zero,
            "combiner": self.combiner,
        }

    def get_build_config(self) -> Any:
        """Return what a file needs to build the layer, and warn that it cannot contain the rows."""
        warnings.warn(
            f"a file of the whole model cannot contain the rows of {self.table!r}, and cannot be "
            f"loaded without the program: save the rows with mv.save and the other weights with "
            f"save_weights",
            UserWarning,
            stacklevel=2,
        )
        return super().get_build_config()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Embedding":
        """Create the layer from `get_config`, with a table in place of its name.

        A clone, as `keras.models.clone_model` makes it, shares the table.
        """
        if isinstance(config["table"], _TableName):
            config = {**config, "table": config["table"].table}
        if not isinstance(config["table"], RowTable):
            raise TypeError(
                f"a file cannot contain the table {config['table']!r}: build the model with its "
                f"tables in the program, and read the other weights with load_weights"
            )
        return cls(**config)


def layers_of(model: Any) -> list[Embedding]:
    """Return the layers of a model that have their rows in a table.

    Examples
    --------
    >>> import keras
    >>> import multiverso as mv
    >>> from multiverso.keras_ext.layers import Embedding, layers_of
    >>> with mv.session():
    ...     table = mv.MatrixTable(1000, 4, updater="sgd")
    ...     model = keras.Sequential([keras.Input((3,), dtype="int32"), Embedding(table)])
    ...     len(layers_of(model))
    1

    """
    flatten = getattr(model, "_flatten_layers", None)
    layers = [model] if flatten is None else flatten(include_self=True, recursive=True)
    return [layer for layer in layers if isinstance(layer, Embedding)]
