"""Scenarios of multiverso.learn, several in one job; each rank reports what a scenario returns.

Each argument is a scenario and its number of ranks: in ``modes/3`` the first three ranks train, and
the others sleep. In ``groups/5/3`` five ranks train, three of them on the first node.
"""

import os
import sys
import traceback
import zlib
from unittest import mock

import worker

worker.begin()

from multiverso.learn import Algo, Data, InputError, ModelBuilder, MPIManager  # noqa: E402
from multiverso.learn._environment import choose_backend, choose_threads  # noqa: E402

choose_backend(os.environ.get("KERAS_BACKEND"))
choose_threads(worker.SIZE)

import keras  # noqa: E402
import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

#: Seconds that a rank may wait for the ranks that train without it.
SCENARIO_TIMEOUT = 400.0

FEATURES, CLASSES = 6, 3
FILES = [f"file {number}" for number in range(6)]
SAMPLES = [40, 60, 50, 50, 70, 30]  # of each of the FILES
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

_scenario = {"comm": MPI.COMM_WORLD}  # the communicator of the current scenario


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
        "comm": _scenario["comm"],
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


def split_comm(size):
    """Return a communicator of the first `size` ranks, or None on the other ranks; collective."""
    comm = _scenario["comm"].Split(0 if worker.RANK < size else MPI.UNDEFINED)
    return None if comm == MPI.COMM_NULL else comm


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
        "groups": [[g["rank"], g["workers"], g["exchanges"]] for g in outcome["groups"]],
    }


def in_fragments(optimizer, **options):
    """Return DiLoCo whose two fragments are exchanged after one and two batches in turn."""
    return algo_of(optimizer, "diloco", sync_every=3, fragments=2, weight="samples", **options)


def modes():
    """Train with every optimizer and mode, asynchronously and in lock-step."""
    found = {}
    for synchronous in (False, True):
        algos = {name: algo_of(name) for name in OPTIMIZERS} | {
            "easgd": algo_of(None, "easgd"),
            "diloco": algo_of("nesterov", "diloco", learning_rate=0.5, momentum=0.5),
            "diloco in fragments": in_fragments("nesterov", learning_rate=0.5, momentum=0.5),
        }
        for name, algo in algos.items():
            outcome = train(manager_of(algo, synchronous=synchronous))
            found[f"{name} {'synchronous' if synchronous else 'asynchronous'}"] = outcome
    return found


def combinations():
    """Train with three optimizers, modes and models, for backends that are slow to compile."""
    runs = {
        "adam asynchronous": (algo_of("adam"), False, Dense()),
        "easgd synchronous": (algo_of(None, "easgd"), True, Dense()),
        "nesterov synchronous": (algo_of("nesterov", sync_every=2), True, Dense(*NORM_AND_DROPOUT)),
    }
    return {
        name: train(manager_of(algo, synchronous=synchronous, model_builder=builder))
        for name, (algo, synchronous, builder) in runs.items()
    }


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


def like_keras(optimizers=tuple(OPTIMIZERS), **options):
    """Return by how much weights differ between one worker and Keras on the same batches."""
    found = {}
    algos = {name: algo_of(name) for name in optimizers}
    # This outer optimizer applies the local steps unchanged.
    algos["diloco"] = algo_of("sgd", "diloco", learning_rate=1.0, worker_optimizer="adam")
    if "num_masters" not in options:
        algos["diloco in fragments"] = in_fragments("sgd", learning_rate=1.0)
    given = {"val_list": None, "num_epochs": 2, "synchronous": True, **options}
    for name, algo in algos.items():
        manager = manager_of(algo, **given)
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


def groups():
    """Train with two groups of one worker, with one group of two, and with one group of one."""
    found = {}
    algos = {
        "adam": algo_of("adam", sync_every=2),
        "easgd": algo_of(None, "easgd"),
        "diloco": algo_of("nesterov", "diloco", learning_rate=0.5, momentum=0.5, wire="int8"),
    }
    five, four, three = map(split_comm, (5, 4, 3))
    for comm, masters in ((five, 3), (four, 2)):
        for name, algo in algos.items() if comm is not None else ():
            given = {"comm": comm, "num_masters": masters, "model_builder": Dense(BATCH_NORM)}
            found[f"{name} of {masters}"] = train(manager_of(algo, **given))
    if three is not None:
        alone = {"comm": three, "num_masters": 2, "synchronous": False}
        found["like_keras"] = like_keras(("sgd", "adam"), **alone)
        folder = f"{os.environ['MULTIVERSO_TEST_JOB']}/groups"
        manager_of(algos["adam"], num_epochs=2, checkpoint=folder, **alone).train()
        manager = manager_of(algos["adam"], restore=folder, **alone)
        found["restored"] = train(manager), manager.outcome and manager.outcome.first_epoch
        try:
            manager_of(algos["adam"], **{**alone, "num_masters": 3}).train()
        except InputError as error:
            found["too few ranks"] = str(error)
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
    """Data that raise an error in the second epoch of the last worker."""

    def __init__(self):
        super().__init__(10)
        self.loads = 0

    def load_data(self, file_name):
        self.loads += 1
        if worker.RANK == _scenario["comm"].size - 1 and self.loads > 5:
            raise OSError("the disk is gone")
        return super().load_data(file_name)


def invalid():
    """Train with invalid input, and then with valid input."""
    options_of = {
        "files": {"train_list": FILES[:1]},
        "loss": {"algo": Algo("adam", loss="no loss")},
        "metrics": {"algo": Algo("adam", loss="mse", metrics=["no metric"])},
        "worker's optimizer": {"algo": algo_of(None, "easgd", worker_optimizer="none")},
        "shapes": {"algo": Algo("adam", loss="categorical_crossentropy")},
        "model": {"model_builder": ModelBuilder()},
        "data": {"data": Failing()},
    }
    found = {}
    for name, options in options_of.items():
        algo = options.pop("algo", algo_of("adam"))
        try:
            manager_of(algo, **options).train()
        except (InputError, RuntimeError, NotImplementedError, OSError) as error:
            found[name] = [type(error).__name__, str(error)]
    found["end"] = train(manager_of(algo_of("adam"), num_epochs=1)) is not None
    return found


SCENARIOS = {
    function.__name__: function
    for function in (modes, combinations, twice, like_keras, groups, callbacks, restored, invalid)
}


def main(arguments):
    """Run each scenario on its ranks."""
    for argument in arguments:
        name, ranks, *per_node = argument.split("/")
        _scenario["comm"] = MPI.COMM_WORLD
        comm = split_comm(int(ranks))
        with mock.patch.dict(os.environ):
            if per_node:
                os.environ["MULTIVERSO_RANKS_PER_NODE"] = per_node[0]
            if comm is not None:
                _scenario["comm"] = comm
                worker.report(**{name: SCENARIOS[name]()})
        worker.meet(f"end of {name}", SCENARIO_TIMEOUT)


try:
    main(sys.argv[1:])
except BaseException:
    traceback.print_exc()
    MPI.COMM_WORLD.Abort(1)  # other ranks may be waiting for the end of a scenario
