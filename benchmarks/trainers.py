"""Models of each framework that train for a number of batches, with and without Multiverso.

The trainers resemble a user's code: `fit` with a callback, a loop with an optimizer, a compiled
Theano function. All train the same small convolutional network on images of noise; Keras and
PyTorch add batch normalization. One model trains both with and without Multiverso, so that only
Multiverso differs; a tiny learning rate keeps the amount of computation constant.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

SIDE, CHANNELS, CLASSES = 32, 3, 10
FILTERS = (16, 32, 64)  # in the 3 x 3 convolutions; 2 x 2 max pooling follows each
HIDDEN = 256
LEARNING_RATE = 1e-5
_SAMPLES = 256  # distinct images; larger batches repeat them


class Trainer(Protocol):
    """A model and its adapter. Collective: all ranks create one.

    Attributes
    ----------
    num_parameters : int
        Number of elements that a sync exchanges.
    """

    num_parameters: int

    def train(self, batches: int, batch_size: int, *, synced: bool) -> None:
        """Train for `batches` batches, with a sync after each if `synced`."""


@functools.lru_cache(2)
def batch_of(size: int, *, channels_first: bool) -> tuple[np.ndarray[Any, Any], Any]:
    """Return images, float32 of shape (size, ...), and labels, int32 of shape (size,)."""
    rng = np.random.default_rng(size)
    shape = (CHANNELS, SIDE, SIDE) if channels_first else (SIDE, SIDE, CHANNELS)
    images = rng.random((min(size, _SAMPLES), *shape), np.float32)
    repeated = np.arange(size) % len(images)
    return images[repeated], rng.integers(0, CLASSES, size).astype(np.int32)


class KerasTrainer:
    """``fit`` of Keras on a backend with ``MVCallback(model, freq=1)``."""

    def __init__(self, backend: str) -> None:
        os.environ["KERAS_BACKEND"] = backend
        import keras

        if backend == "torch":
            import torch

            torch.set_num_threads(len(os.sched_getaffinity(0)))
        from multiverso.keras_ext import MVCallback

        layers = keras.layers
        stack: list[Any] = [layers.Input((SIDE, SIDE, CHANNELS))]
        for filters in FILTERS:
            stack += [layers.Conv2D(filters, 3, padding="same", use_bias=False)]
            stack += [layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
        stack += [layers.Flatten(), layers.Dense(HIDDEN, activation="relu"), layers.Dense(CLASSES)]
        self._model = keras.Sequential(stack)
        cost = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._model.compile(keras.optimizers.SGD(LEARNING_RATE), cost)
        self._callback = MVCallback(self._model, average=False)
        self.num_parameters = sum(table.size for table in self._callback.manager.tables)

    def train(self, batches: int, batch_size: int, *, synced: bool) -> None:
        """Train for one epoch of `batches` batches; see `Trainer`."""
        images, labels = batch_of(batches * batch_size, channels_first=False)
        self._model.fit(
            images,
            labels,
            batch_size=batch_size,
            shuffle=False,
            verbose=0,
            callbacks=[self._callback] if synced else [],
        )


class TorchTrainer:
    """A PyTorch loop with ``DistributedOptimizer``."""

    def __init__(self) -> None:
        import torch

        from multiverso.torch_ext import DistributedOptimizer

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        nn = torch.nn
        stack: list[Any] = []
        for inputs, filters in zip((CHANNELS, *FILTERS), FILTERS, strict=False):
            stack += [nn.Conv2d(inputs, filters, 3, padding=1, bias=False)]
            stack += [nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2)]
        flat = FILTERS[-1] * (SIDE >> len(FILTERS)) ** 2
        stack += [nn.Flatten(), nn.Linear(flat, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)]
        self._model = nn.Sequential(*stack)
        self._cost = nn.CrossEntropyLoss()
        self._plain = torch.optim.SGD(self._model.parameters(), LEARNING_RATE)
        self._synced = DistributedOptimizer(self._plain, self._model, average=False)
        self.num_parameters = sum(table.size for table in self._synced.manager.tables)

    def train(self, batches: int, batch_size: int, *, synced: bool) -> None:
        """Train; see `Trainer`."""
        import torch

        images, labels = map(torch.from_numpy, batch_of(batch_size, channels_first=True))
        optimizer = self._synced if synced else self._plain
        for _ in range(batches):
            optimizer.zero_grad()
            self._cost(self._model(images), labels.long()).backward()
            optimizer.step()


class JaxTrainer:
    """A JAX loop in Flax and Optax with ``PytreeSync``."""

    def __init__(self) -> None:
        import jax
        import optax
        from flax import linen

        from multiverso.jax_ext import PytreeSync

        class Network(linen.Module):
            @linen.compact
            def __call__(self, x: Any) -> Any:
                for filters in FILTERS:
                    x = linen.relu(linen.Conv(filters, (3, 3))(x))
                    x = linen.max_pool(x, (2, 2), (2, 2))
                x = linen.relu(linen.Dense(HIDDEN)(x.reshape(len(x), -1)))
                return linen.Dense(CLASSES)(x)

        network, optimizer = Network(), optax.sgd(LEARNING_RATE)

        def cost(params: Any, x: Any, y: Any) -> Any:
            scores = network.apply(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

        def step(params: Any, state: Any, x: Any, y: Any) -> Any:
            updates, state = optimizer.update(jax.grad(cost)(params, x, y), state, params)
            return optax.apply_updates(params, updates), state

        self._step = jax.jit(step)
        images, _ = batch_of(1, channels_first=False)
        self._sync = PytreeSync(network.init(jax.random.key(0), images), average=False)
        self._params = self._sync.params
        self._state = optimizer.init(self._params)
        self.num_parameters = sum(table.size for table in self._sync.tables)

    def train(self, batches: int, batch_size: int, *, synced: bool) -> None:
        """Train; see `Trainer`."""
        import jax

        images, labels = batch_of(batch_size, channels_first=False)
        for _ in range(batches):
            self._params, self._state = self._step(self._params, self._state, images, labels)
            if synced:
                self._params = self._sync.sync(self._params)
        jax.block_until_ready(self._params)


class LasagneTrainer:
    """A compiled Theano function with ``LasagneParamManager``."""

    def __init__(self) -> None:
        sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "common"))
        from lasagne_backend import T, lasagne, theano

        from multiverso.lasagne_ext.param_manager import LasagneParamManager

        layers = lasagne.layers
        x, y = T.tensor4("x"), T.ivector("y")
        stack = layers.InputLayer((None, CHANNELS, SIDE, SIDE), x)
        for filters in FILTERS:
            stack = layers.MaxPool2DLayer(layers.Conv2DLayer(stack, filters, 3, pad=1), 2)
        stack = layers.DenseLayer(stack, HIDDEN)
        network = layers.DenseLayer(stack, CLASSES, nonlinearity=lasagne.nonlinearities.softmax)
        probabilities = layers.get_output(network)
        cost = lasagne.objectives.categorical_crossentropy(probabilities, y).mean()
        parameters = layers.get_all_params(network, trainable=True)
        updates = lasagne.updates.sgd(cost, parameters, LEARNING_RATE)
        self._step = theano.function([x, y], updates=updates)
        self._manager = LasagneParamManager(network)
        self.num_parameters = sum(table.size for table in self._manager.tables)

    def train(self, batches: int, batch_size: int, *, synced: bool) -> None:
        """Train; see `Trainer`."""
        images, labels = batch_of(batch_size, channels_first=True)
        for _ in range(batches):
            self._step(images, labels)
            if synced:
                self._manager.sync()


#: The trainer of each adapter, and the modules that it needs.
TRAINERS: dict[str, tuple[Callable[[], Trainer], tuple[str, ...]]] = {
    "keras-jax": (lambda: KerasTrainer("jax"), ("keras", "jax")),
    "keras-tensorflow": (lambda: KerasTrainer("tensorflow"), ("keras", "tensorflow")),
    "keras-torch": (lambda: KerasTrainer("torch"), ("keras", "torch")),
    "torch": (TorchTrainer, ("torch",)),
    "jax": (JaxTrainer, ("jax", "flax", "optax")),
    "lasagne": (LasagneTrainer, ("lasagne", "theano")),
}
