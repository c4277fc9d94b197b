"""Training steps with Keras: alone, and through `multiverso.learn` with one worker and with two."""

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
SHAPE, CLASSES = (28, 28, 1), 10  # as of MNIST
WIDTH = 640

#: Batches before the clock starts: what is compiled or allocated is then there.
_WARM_UP = 5
_LOSS = "sparse_categorical_crossentropy"


def wide() -> Any:
    """Return two wide dense layers: 0.92 million parameters for little computing."""
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
    """As many batches as wanted, of random numbers, and the time of going over them.

    Attributes
    ----------
    number : int
        Batches of an epoch, those of the warm-up not counted.
    span : list of float
        When the first of them was asked for, and when it was known that there are no more.
    """

    def __init__(self) -> None:
        super().__init__(BATCH)
        rng = np.random.default_rng(1)
        self._features = rng.random((20, BATCH, *SHAPE), np.float32)
        self._labels = rng.integers(0, CLASSES, (20, BATCH))
        self.number = 1
        self.span: list[float] = []

    def generate_data(self) -> Iterator[tuple[Any, ...]]:
        """Yield the warm-up, then the batches that count."""
        for index in range(_WARM_UP + self.number):
            if index == _WARM_UP:
                self.span[:] = [time.perf_counter()]
            yield self._features[index % 20], self._labels[index % 20]
        self.span[1:] = [time.perf_counter()]


class ThroughTheServer:
    """Training by `MPIManager`: rank 0 is the master, the next ranks are the workers.

    Parameters
    ----------
    ranks : Ranks
        The processes of this run.
    model : str
        Which of `MODELS`.
    workers : int
        How many of them train.
    """

    def __init__(self, ranks: Ranks, model: str, workers: int) -> None:
        self._network = Network(model)
        self.name = "Multiverso" if workers == 1 else f"Multiverso, {workers} workers"
        self.statement = "MPIManager(...).train(): seconds of a batch, all workers at once"
        self.workers = workers
        self._trains = 1 <= ranks.rank <= workers
        takes_part = ranks.rank <= workers
        comm = ranks.comm.Split(0 if takes_part else ranks.mpi.UNDEFINED)
        self._comm = comm if takes_part else None
        self._alone = ranks.mpi.COMM_SELF

    def run(self, calls: int) -> Span | None:
        """Train on `calls` batches on each worker; None on ranks that do not train."""
        if self._comm is None:
            # Ranks number their sessions, and those that open one together must agree.
            with mv.session(comm=self._alone):
                return None
        data = Batches()
        data.number = calls
        names = [f"worker {number}" for number in range(self.workers)]
        algo = Algo("adam", loss=_LOSS)
        MPIManager(self._comm, data, algo, self._network, 1, names).train()
        keras.backend.clear_session()
        return Span(*data.span) if self._trains else None


class KerasAlone:
    """`fit` on rank 1, with the optimiser and the batches of the others."""

    name = "plain Keras"
    statement = "model.fit(batches): seconds of a batch"
    workers = 1

    def __init__(self, ranks: Ranks, model: str) -> None:
        self._trains = ranks.rank == 1
        self._network = Network(model)

    def run(self, calls: int) -> Span | None:
        """Train on `calls` batches; None on the other ranks."""
        if not self._trains:
            return None
        model = self._network.build_model()
        model.compile(
            keras.optimizers.Adam(), loss=_LOSS, metrics=["accuracy"], auto_scale_loss=False
        )
        data = Batches()
        data.number = calls
        with warnings.catch_warnings():
            # Keras would rather be told how many there are, but it is asking that ends the span.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            model.fit(data.generate_data(), epochs=1, shuffle=False, verbose=0)
        keras.backend.clear_session()
        return Span(*data.span)
