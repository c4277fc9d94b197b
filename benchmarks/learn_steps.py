"""Training steps of plain Keras, and of `multiverso.learn` with one worker and with two."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

import multiverso as mv
from multiverso.learn import Algo, Data, ModelBuilder, MPIManager
from ranks import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ranks import Ranks

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "mpi_learn" / "models"))
import zoo  # noqa: E402

BATCH = 100
SHAPE, CLASSES = (28, 28, 1), 10  # those of MNIST
WIDTH = 640

#: Untimed batches at the start, during which frameworks compile and allocate.
_WARM_UP = 5
_DISTINCT = 20  # batches, which repeat
_LOSS = "sparse_categorical_crossentropy"


def wide() -> Any:
    """Return two wide dense layers: 0.92 million parameters with little computation."""
    return keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Flatten(),
            keras.layers.Dense(WIDTH, activation="relu"),
            keras.layers.Dense(WIDTH, activation="relu"),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )


#: The convolutional network of the example has 0.06 million parameters.
MODELS = {"mnist": zoo.mnist, "wide": wide}


class Network(ModelBuilder):
    """One of `MODELS`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.build_model = MODELS[name]


class Batches(Data):
    """Batches of random numbers, and the time that training on them takes.

    Attributes
    ----------
    num_timed : int
        Batches of an epoch without the warm-up.
    span : list of float
        When the first timed batch was requested, and when the last one was finished.
    """

    def __init__(self, num_timed: int) -> None:
        super().__init__(BATCH)
        rng = np.random.default_rng(1)
        self._features = rng.random((_DISTINCT, BATCH, *SHAPE), np.float32)
        self._labels = rng.integers(0, CLASSES, (_DISTINCT, BATCH))
        self.num_timed = num_timed
        self.span: list[float] = []

    def generate_data(self) -> Iterator[tuple[Any, ...]]:
        """Yield the warm-up, then the timed batches."""
        for index in range(_WARM_UP + self.num_timed):
            if index == _WARM_UP:
                self.span[:] = [time.perf_counter()]
            yield self._features[index % _DISTINCT], self._labels[index % _DISTINCT]
        self.span[1:] = [time.perf_counter()]


class LearnTraining:
    """Trains one of `MODELS` with `MPIManager`: rank 0 is the master, the next are workers."""

    def __init__(self, ranks: Ranks, model: str, workers: int) -> None:
        self._network = Network(model)
        self.name = "Multiverso" if workers == 1 else f"Multiverso, {workers} workers"
        self.statement = "MPIManager(...).train(): seconds of a batch, all workers at once"
        self.workers = workers
        self._is_worker = 1 <= ranks.rank <= workers
        takes_part = ranks.rank <= workers
        comm = ranks.comm.Split(0 if takes_part else ranks.mpi.UNDEFINED)
        self._comm = comm if takes_part else None
        self._alone = ranks.mpi.COMM_SELF

    def run(self, calls: int) -> Span | None:
        """Train on `calls` batches on each worker; return None on the other ranks."""
        if self._comm is None:
            # The ranks of a later session must agree on its number, so this rank opens one as well.
            with mv.session(comm=self._alone):
                return None
        data = Batches(calls)
        names = [f"worker {index}" for index in range(self.workers)]
        algo = Algo("adam", loss=_LOSS)
        MPIManager(self._comm, data, algo, self._network, 1, names).train()
        keras.backend.clear_session()
        return Span(*data.span) if self._is_worker else None


class PlainTraining:
    """Trains with `fit` on rank 1, with the optimizer and batches of `LearnTraining`."""

    name = "plain Keras"
    statement = "model.fit(batches): seconds of a batch"
    workers = 1

    def __init__(self, ranks: Ranks, model: str) -> None:
        self._is_worker = ranks.rank == 1
        self._network = Network(model)

    def run(self, calls: int) -> Span | None:
        """Train on `calls` batches; return None on the other ranks."""
        if not self._is_worker:
            return None
        model = self._network.build_model()
        model.compile(
            keras.optimizers.Adam(), loss=_LOSS, metrics=["accuracy"], auto_scale_loss=False
        )
        data = Batches(calls)
        with warnings.catch_warnings():
            # The generator ends the span when Keras asks for more batches than there are, of which
            # Keras warns.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            model.fit(data.generate_data(), epochs=1, shuffle=False, verbose=0)
        keras.backend.clear_session()
        return Span(*data.span)
