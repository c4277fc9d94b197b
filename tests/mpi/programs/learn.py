"""Scenarios of multiverso.learn, several in one job; each rank reports what a scenario returns.

Each argument is a scenario. All ranks train in all scenarios, however the job was started.
"""

import os
import signal
import sys
import zlib

import worker

if "shielded" in sys.argv:
    worker.shield()
worker.begin()

from multiverso.learn import Algo, Data, InputError, ModelBuilder, MPIManager  # noqa: E402
from multiverso.learn._environment import choose_backend, choose_threads  # noqa: E402

choose_backend(os.environ.get("KERAS_BACKEND"))
choose_threads(worker.SIZE)

import keras  # noqa: E402
import numpy as np  # noqa: E402

import multiverso as mv  # noqa: E402

FEATURES, CLASSES = 6, 3
FILES = [f"file {number}" for number in range(6)]
SAMPLES = [70, 60, 50, 50, 40, 30]  # of each of the FILES; workers have different numbers
VALIDATION = ["file for validation"]

BATCH_NORM = keras.layers.BatchNormalization
NORM_AND_DROPOUT = (BATCH_NORM, lambda: keras.layers.Dropout(0.2))

OPTIMIZERS = {
    "sgd": {"learning_rate": 0.25},
    "momentum": {"learning_rate": 0.03},
    "nesterov": {"learning_rate": 0.03},
    "adagrad": {"learning_rate": 0.1},
    "rmsprop": {"learning_rate": 0.01},
    "adadelta": {},
    "adam": {"learning_rate": 0.02},
    "dcasgd": {"learning_rate": 0.25},
    "dcasgda": {"learning_rate": 0.25},
}

MODES = {
    "easgd": {"elastic_lr": 0.1, "sync_every": 2},
    "diloco": {"elastic_lr": 0.25, "sync_every": 3},
}


class Clusters(Data):
    """Points around three centers, different points in each file."""

    def load_data(self, file_name):
        rng = np.random.default_rng(zlib.crc32(file_name.encode()))
        size = SAMPLES[FILES.index(file_name)] if file_name in FILES else 90
        labels = rng.integers(0, CLASSES, size)
        centers = 2 * np.eye(CLASSES, FEATURES, dtype=np.float32)
        noise = 0.5 * rng.standard_normal((size, FEATURES), dtype=np.float32)
        return centers[labels] + noise, labels


class Dense(ModelBuilder):
    """Two dense layers with other layers in between."""

    def __init__(self, *between):
        super().__init__()
        self.between = between

    def build_model(self):
        return keras.Sequential(
            [
                keras.Input((FEATURES,)),
                keras.layers.Dense(8, activation="tanh"),
                *(layer() for layer in self.between),
                keras.layers.Dense(CLASSES, activation="softmax"),
            ]
        )


def manager_of(algo, **options):
    """Return the manager of a short training."""
    defaults = {
        "comm": None,
        "data": Clusters(10),
        "model_builder": Dense(),
        "num_epochs": 4,
        "train_list": FILES,
        "val_list": VALIDATION,
        "seed": 7,
        "timeout": 100.0,
    }
    return MPIManager(algo=algo, **{**defaults, **options})


def algo_of(name, mode="sgd", **options):
    """Return an algorithm with the options of its mode, or of its optimizer."""
    given = MODES[mode] if mode in MODES else OPTIMIZERS[name]
    given = {"loss": "sparse_categorical_crossentropy", "mode": mode, **given, **options}
    return Algo(name, **given)


def train(manager):
    """Train; return the outcome without times on the master, else None."""
    history = manager.train()
    if history is None:
        return None
    outcome = manager.outcome.as_dict({})
    return {
        "history": history,
        "weights": [float(array.sum()) for array in manager.model.get_weights()],
        "samples": [entry["samples"] for entry in outcome["epochs"]],
        "workers": [(entry["rank"], entry["samples"]) for entry in outcome["workers"]],
        "updates": sum(entry["updates"] for entry in outcome["workers"]),
        "staleness": outcome["staleness"],
    }


def in_fragments(optimizer, *, weight="samples", **options):
    """Return DiLoCo whose two fragments are exchanged after one and two batches in turn."""
    return algo_of(optimizer, "diloco", sync_every=3, fragments=2, weight=weight, **options)


def modes():
    """Train in every mode, and with optimizers of every kind, asynchronously and in lock-step."""
    algos = {
        "momentum": algo_of("momentum"),
        "adam": algo_of("adam", sync_every=2),
        "dcasgda": algo_of("dcasgda"),
        "easgd": algo_of(None, "easgd"),
        "diloco": algo_of("nesterov", "diloco", learning_rate=0.5, momentum=0.5),
        "diloco in fragments": in_fragments("nesterov", learning_rate=0.5, momentum=0.5),
    }
    return {
        f"{name} {'synchronous' if synchronous else 'asynchronous'}": train(
            manager_of(algo, synchronous=synchronous)
        )
        for synchronous in (False, True)
        for name, algo in algos.items()
        if not (synchronous and name == "dcasgda")
    }


def masters():
    """Train with 1 and with 3 masters, and with what else mpi_learn has."""
    given = {"synchronous": True, "num_epochs": 1}
    foreign = {"num_masters": 3, "num_processes": 1, "verbose": True, "early_stopping": "4"}
    managers = [manager_of(algo_of("adam"), **given, **more) for more in ({}, foreign)]
    assert not hasattr(managers[0], "process")
    return [train(manager) for manager in managers]


def combinations():
    """Train with three optimizers, modes and models, for backends that are slow to compile."""
    runs = {
        "adam asynchronous": (algo_of("adam", wire="int8"), False, Dense()),
        "easgd synchronous": (algo_of(None, "easgd"), True, Dense()),
        "nesterov synchronous": (algo_of("nesterov", sync_every=2), True, Dense(*NORM_AND_DROPOUT)),
    }
    return {
        name: train(manager_of(algo, synchronous=synchronous, model_builder=builder))
        for name, (algo, synchronous, builder) in runs.items()
    }


def combinations_on_two_nodes():
    """Train these with a worker that acts as another node."""
    os.environ["MULTIVERSO_RANKS_PER_NODE"] = str(worker.SIZE - 1)
    try:
        found = combinations()
        with mv.session() as session:
            return {"nodes": session.num_nodes, "outcomes": found}
    finally:
        del os.environ["MULTIVERSO_RANKS_PER_NODE"]


def twice():
    """Train in lock-step twice, with layers that draw random numbers and have running means."""
    found = {}
    given = {"synchronous": True, "num_epochs": 2}
    for name, algo in (("adam", algo_of("adam", sync_every=3)), ("easgd", algo_of(None, "easgd"))):
        found[name] = [
            train(manager_of(algo, model_builder=Dense(*NORM_AND_DROPOUT), **given))
            for _ in range(2)
        ]
    found["diloco in fragments"] = [
        train(manager_of(in_fragments("sgd", learning_rate=1.0), **given)) for _ in range(2)
    ]
    # Steps of size 1 with the mean of single local steps are steps with the mean gradient.
    found["diloco"] = [
        train(manager_of(algo, **given))
        for algo in (algo_of("sgd", "diloco", learning_rate=1.0, sync_every=1), algo_of("sgd"))
    ]
    return found


def like_keras():
    """Return by how much weights differ between one worker and Keras on the same batches.

    The worker is rank 1, and the ranks after it take no part.
    """
    from mpi4py import MPI

    inside = worker.RANK < 2
    comm = MPI.COMM_WORLD.Split(0 if inside else MPI.UNDEFINED)
    found = _differences_from_keras(comm) if inside else None
    # The other ranks sleep here. Waiting in MPI would take a core from those that train.
    worker.meet("end of like_keras")
    return found


def _differences_from_keras(comm):
    found = {}
    algos = {name: algo_of(name) for name in OPTIMIZERS}
    # This outer optimizer applies the local steps unchanged.
    algos["diloco"] = algo_of("sgd", "diloco", learning_rate=1.0, worker_optimizer="adam")
    algos["diloco in fragments"] = in_fragments("sgd", weight=None, learning_rate=1.0)
    for name, algo in algos.items():
        # The only worker waits for no other, so the modes do not differ.
        is_asynchronous = name in ("dcasgd", "dcasgda")
        given = {"val_list": None, "num_epochs": 2, "synchronous": not is_asynchronous}
        manager = manager_of(algo, comm=comm, **given)
        if manager.train() is None:
            continue
        keras.utils.set_random_seed(7)  # the seed of the master's weights
        model = Dense().build_model()
        algo.compile_model(model)
        data = Clusters(10)
        data.set_file_names(FILES)
        for _ in range(2):
            for features, labels in data.generate_data():
                model.train_on_batch(features, labels)
        pairs = zip(manager.model.get_weights(), model.get_weights(), strict=True)
        found[name] = max(float(abs(ours - theirs).max()) for ours, theirs in pairs)
    return found


def callbacks():
    """Train with callbacks on the master."""
    seen = []

    class Seen(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append([epoch, sorted(logs), float(self.model.get_weights()[0].sum())])

    folder = os.environ["TMPDIR"]
    made = [
        Seen(),
        keras.callbacks.CSVLogger(f"{folder}/log.csv"),
        keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=2),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.125 if epoch < 1 else 0.0),
    ]
    manager = manager_of(
        algo_of("sgd"),
        num_epochs=50,
        callbacks=made if worker.RANK == 0 else None,
        synchronous=True,
    )
    history = manager.train()
    if history is None:
        return None
    with open(f"{folder}/log.csv", encoding="utf-8") as file:
        rows = len(file.readlines())
    best = keras.models.load_model(f"{folder}/best.keras")
    return {"history": history, "seen": seen, "rows": rows, "best": best.count_params()}


def restored():
    """Train four epochs without interruption, and with a restart from a checkpoint."""
    found = {}
    for name, algo, synchronous in (
        ("adam synchronous", algo_of("adam"), True),
        ("adam asynchronous", algo_of("adam"), False),
        ("easgd synchronous", algo_of(None, "easgd"), True),
    ):
        folder = f"{os.environ['MULTIVERSO_TEST_JOB']}/{name}"
        given = {"synchronous": synchronous, "model_builder": Dense(BATCH_NORM)}
        whole = train(manager_of(algo, **given))
        manager_of(algo, num_epochs=2, checkpoint=folder, checkpoint_interval=5, **given).train()
        manager = manager_of(algo, restore=folder, checkpoint=folder, **given)
        found[name] = [whole, train(manager), manager.outcome and manager.outcome.first_epoch]
        kept = sorted(os.listdir(folder))
        worker.report(kept=kept)
    for name, algo, options in (
        ("nothing", algo_of("adam"), {"restore": "no such folder"}),
        ("another optimizer", algo_of("sgd"), {"restore": folder}),
        ("all epochs", algo_of(None, "easgd"), {"restore": folder, "synchronous": True}),
    ):
        try:
            manager_of(algo, model_builder=Dense(BATCH_NORM), **options).train()
        except InputError as error:
            found[name] = str(error)
    return found


class Failing(Clusters):
    """Data that raise an error, or kill the process, in the second epoch of the last worker."""

    def __init__(self, kills=False):
        super().__init__(10)
        self.loads = 0
        self.kills = kills

    def load_data(self, file_name):
        self.loads += 1
        if worker.RANK == worker.SIZE - 1 and self.loads > 5:
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the disk is gone")
        return super().load_data(file_name)


class FailingCallback(keras.callbacks.Callback):
    """Fails after the first epoch."""

    def on_epoch_end(self, epoch, logs=None):
        raise ArithmeticError("no such score")


class MissingFiles(Clusters):
    """Data of which the last worker misses its first file."""

    def check(self, file_names):
        if worker.RANK == worker.SIZE - 1:
            raise InputError(f"cannot read {file_names[0]}: no such file")


def invalid():
    """Train with invalid input, and then with valid input."""
    options_of = {
        "files": {"train_list": FILES[:1]},
        "missing": {"data": MissingFiles(10)},
        "loss": {"algo": Algo("adam", loss="no loss")},
        "metrics": {"algo": Algo("adam", loss="mse", metrics=["no metric"])},
        "optimizer": {"algo": algo_of("dcasgd"), "synchronous": True},
        "worker's optimizer": {"algo": algo_of(None, "easgd", worker_optimizer="none")},
        "shapes": {"algo": Algo("adam", loss="categorical_crossentropy")},
        "model": {"model_builder": ModelBuilder()},
        "data": {"data": Failing()},
        "data in lock-step": {"data": Failing(), "synchronous": True},
        "callback": {"callbacks": [FailingCallback()], "num_epochs": 100},
    }
    found = {}
    for name, options in options_of.items():
        algo = options.pop("algo", algo_of("adam"))
        try:
            manager_of(algo, **options).train()
        except (InputError, RuntimeError, NotImplementedError, OSError, ArithmeticError) as error:
            found[name] = [type(error).__name__, str(error)]
        # The ranks that a failed rank has left find out at different times.
        worker.meet(f"end of {name}")
    found["end"] = train(manager_of(algo_of("adam"), num_epochs=1)) is not None
    return found


def killed(mode):
    """Train until the last worker is killed."""
    options = {"data": Failing(kills=True), "synchronous": mode == "synchronous"}
    worker.report_call(manager_of(algo_of("adam"), num_epochs=1000, **options).train)


def single():
    """Return how many ranks and masters there are, and whether MPI was loaded."""
    with mv.session():
        size = mv.size()
    outcome = train(manager_of(algo_of("adam"), num_epochs=1))
    return {
        "size": size,
        "is_master": outcome is not None,
        "workers": None if outcome is None else outcome["workers"],
        "has_mpi": "mpi4py.MPI" in sys.modules,
    }


SCENARIOS = (
    *(
        modes,
        masters,
        combinations,
        combinations_on_two_nodes,
        twice,
        like_keras,
        callbacks,
        restored,
        invalid,
    ),
    single,
)


def main(arguments):
    """Run each scenario."""
    if "shielded" in arguments:
        killed(arguments[1])
        return
    by_name = {function.__name__: function for function in SCENARIOS}
    for name in arguments:
        worker.report(**{name: by_name[name]()})


main(sys.argv[1:])
