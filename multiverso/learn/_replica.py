"""A rank's copy of the model, with its parameters and its gradient as flat arrays, as in tables."""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._extras import BACKENDS, LEARN, needs
from multiverso._native.arrays import native_order
from multiverso.learn._input import InputError, as_input_error
from multiverso.learn._settings import Settings
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data, length_of, mapped
from multiverso.sync._table_copy import change_of

with needs("the training of a model", **LEARN, **BACKENDS):
    import keras
    import tqdm  # noqa: F401  (for the progress; here its absence is found before training)

    from multiverso.keras_ext._training import GradientCapture, flat_variables, train_step_of
    from multiverso.keras_ext._variables import backend_module

Batch = tuple[Any, ...]

_log = logging.getLogger("multiverso")

_FLOATS: Final = ("float32", "float64")


class Replica:
    """A built and compiled model, with its parameters as one flat array, all float32 or float64.

    With `uses_difference`, the gradient is the change that a step of SGD makes, as in mpi_learn,
    for models whose ``train_step`` passes no gradients to the optimizer. `gradient` is that of the
    last batch, unless the model's own optimizer made a step instead.
    """

    def __init__(self, model: Any, uses_difference: bool = False) -> None:
        self.model = model
        dtypes = {str(variable.dtype) for variable in model.trainable_variables}
        if len(dtypes) != 1 or not dtypes <= set(_FLOATS):
            found = " and ".join(sorted(dtypes)) or "none"
            raise InputError(
                f"the model: expected trainable weights, all float32 or all float64, found {found}"
            )
        self.dtype = dtypes.pop()
        self.weights = flat_variables(model, model.trainable_variables, self.dtype)
        others = [v for v in model.non_trainable_variables if str(v.dtype) in _FLOATS]
        self.state = flat_variables(model, others, self.dtype)
        self._uses_difference = uses_difference
        self._gradient = None
        self.gradient: NDArray[Any] = np.zeros_like(self.weights.array)
        if isinstance(model.optimizer, GradientCapture):
            model.optimizer.build(model.trainable_variables)
            self._gradient = flat_variables(model, model.optimizer.gradients, self.dtype)
            self.gradient = self._gradient.array
        self._train_step: Callable[[Any], Any] | None = None

    def step(self, batch: Batch) -> None:
        """Train on a batch: set `gradient`, or let the model's optimizer make a step."""
        data = unpack(batch)
        if self._train_step is None:
            self._train_step = train_step_of(self.model)
        if not self._uses_difference:
            self._train_step(data)
            if self._gradient is not None:
                self._gradient.pull()
            return
        before = self.weights.array.copy()
        self._train_step(data)
        self.weights.pull()
        change_of(before, self.weights.array, self.gradient)
        np.copyto(self.weights.array, before)
        self.weights.push()

    def results(self) -> dict[str, float]:
        """Return loss and metrics since the last call, and reset both."""
        results = _without_nesting(self.model.get_metrics_result())
        self.model.reset_metrics()
        return {name: float(value) for name, value in results.items()}

    @property
    def learning_rate(self) -> float:
        """The learning rate of the model's optimizer."""
        return float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self.model.optimizer.learning_rate = value


def data_with(settings: Settings, files: Sequence[str]) -> Data:
    """Return a copy of the data object of the settings, which reads `files`."""
    data = copy.copy(settings.data)
    data.set_file_names(files)
    return data


class Passes:
    """The passes over some files, without empty batches; the first batch of all is `sample`."""

    def __init__(self, settings: Settings, files: Sequence[str]) -> None:
        self._data = data_with(settings, files)
        self.sample, first = self._open()
        self._opened = [first]

    def __next__(self) -> Iterator[Batch]:
        """Return the batches of the next pass; raise InputError if there is none."""
        return self._opened.pop() if self._opened else self._open()[1]

    def _open(self) -> tuple[Batch, Iterator[Batch]]:
        given = self._data.generate_data()
        batches = (batch for batch in given if length_of(unpack(batch)[0]) > 0)
        for batch in batches:
            return batch, chain([batch], batches)
        name = type(self._data).__name__
        raise InputError(f"{name}: expected a batch from each call of generate_data, received none")


def seed_random(seed: int | None, number: int) -> None:
    """Seed all random numbers of this rank with `seed` and the number of the worker, if given."""
    if seed is not None:
        keras.utils.set_random_seed((seed + number) % 2**32)


def training_replica(model: Any, algo: Algo, sample: Batch, difference: bool = False) -> Replica:
    """Compile `model` for training, and return the replica with which a worker trains it.

    With `difference`, or if the model's own ``train_step`` passes on no gradients, the gradient is
    computed from a step of SGD, see `Replica`.
    """
    with as_input_error("", ValueError):
        backend_module()
    if not difference:
        optimizer = None if algo.local_steps else GradientCapture()
        replica = Replica(_compiled(model, algo, sample, optimizer))
        constrained = [v.path for v in model.trainable_variables if getattr(v, "constraint", None)]
        if constrained and not algo.local_steps:
            # The optimizer of the tables, which makes the steps, knows none.
            text = "mode 'sgd' ignores the constraints of %s: use mode 'easgd' or 'diloco'"
            _log.warning(text, ", ".join(constrained))
        has_own_step = not type(model).train_step.__module__.startswith("keras.")
        if algo.local_steps or not has_own_step or _gives_gradients(replica, sample):
            return replica
        _log.warning(
            "the model's train_step gives no gradients: they are computed from steps of SGD"
        )
    optimizer = keras.optimizers.SGD(1.0)
    return Replica(_compiled(model, algo, sample, optimizer), uses_difference=True)


def validation_replica(model: Any, algo: Algo, sample: Batch) -> Replica:
    """Return the replica of the master, which is not trained; see `training_replica` for errors."""
    _warn_of_loss(model, algo.loss, sample)
    return Replica(_compiled(model, algo, sample))


def _compiled(model: Any, algo: Algo, sample: Batch, optimizer: Any = None) -> Any:
    """Compile the model, and evaluate a batch, which builds it and tests the batch; return it."""
    algo.compile_model(model, optimizer)
    features, labels, weights = unpack(sample)
    with as_input_error("the data do not fit the model"):  # Frameworks raise errors of many types.
        model.test_on_batch(features, labels, sample_weight=weights)
    model.reset_metrics()
    return model


def _gives_gradients(replica: Replica, sample: Batch) -> bool:
    """Return whether the model's own ``train_step`` passes gradients to the optimizer."""
    state = replica.state.array.copy()
    try:
        replica.step(sample)
    except Exception as error:  # A train_step may need an optimizer that changes the weights.
        _log.debug("the model's train_step failed: %s", error)
        replica.model.optimizer.is_used = False
    replica.results()  # This resets the metrics.
    np.copyto(replica.state.array, state)
    replica.state.push()
    return bool(replica.model.optimizer.is_used)


def _warn_of_loss(model: Any, loss: Any, sample: Batch) -> None:
    """Warn if a softmax of several classes is trained as if each class were a yes or no."""
    last = model.layers[-1] if getattr(model, "layers", None) else None
    is_softmax = isinstance(last, keras.layers.Softmax) or (
        getattr(last, "activation", None) is keras.activations.softmax
    )
    classes = model.output_shape[-1] if is_softmax else None
    if loss != "binary_crossentropy" or classes is None or classes <= 2:
        return
    is_one_hot = np.shape(sample[1])[-1:] == (classes,)
    better = f"{'' if is_one_hot else 'sparse_'}categorical_crossentropy"
    _log.warning(
        "the model ends in a softmax of %d classes, which the loss binary_crossentropy, the "
        "default, does not train well: use --loss %s, or Algo(loss=%r)",
        classes,
        better,
        better,
    )


def _without_nesting(results: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in results.items():
        flat.update(_without_nesting(value) if isinstance(value, dict) else {name: value})
    return flat


def unpack(batch: Batch) -> tuple[Any, Any, Any]:
    """Return features, labels and sample weights (or None) of a batch, with tuples for lists."""
    if isinstance(batch, tuple | list) and 2 <= len(batch) <= 3:
        features, labels, *weights = mapped(native_order, batch)
        return features, labels, weights[0] if weights else None
    raise InputError(f"a batch: expected (features, labels), received {type(batch).__name__}")
