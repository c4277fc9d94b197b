"""A Keras model that all workers train, seen from each rank, on the backend of KERAS_BACKEND."""

import worker

worker.begin()

import keras  # noqa: E402
import numpy as np  # noqa: E402

import multiverso as mv  # noqa: E402
from multiverso.keras_ext import KerasParamManager, MVCallback, shard  # noqa: E402

MODES = {"async": {}, "sync": {"sync": True}, "stale": {"staleness": 2}}


def model_of(learning_rate=0.05):
    """Return a model with batch normalization and different weights on each worker."""
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(
                4,
                activation="tanh",
                kernel_initializer=keras.initializers.RandomNormal(seed=mv.worker_id()),
            ),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(
                1, kernel_initializer=keras.initializers.RandomNormal(seed=mv.worker_id())
            ),
        ]
    )
    model.compile(keras.optimizers.SGD(learning_rate), "mse", metrics=["mae"])
    return model


def flat(model):
    arrays = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    return np.concatenate([array.ravel() for array in arrays])


def held(manager):
    return np.concatenate([table.get() for table in manager.tables])


def trained(freq):
    """Train on this worker's part of the data; return the model, its callback and its history."""
    keras.utils.set_random_seed(1 + mv.worker_id())
    x = np.random.default_rng(5).normal(size=(60, 3)).astype(np.float32)
    x, y = shard(x, x.sum(axis=1, keepdims=True))
    model = model_of()
    callback = MVCallback(model, freq=freq, average_metrics=True)
    history = model.fit(x, y, batch_size=4, epochs=4, verbose=0, callbacks=[callback]).history
    mv.barrier()
    callback.sync()
    return model, callback, history


def fitting(mode, name):
    """All workers end with the tables' values, a better model, and averaged metrics."""
    with mv.session(**MODES[mode]):
        model, callback, history = trained(freq=2)
        result = {
            "table": bool((np.sort(flat(model)) == np.sort(held(callback.manager))).all()),
            "weights": flat(model).tolist(),
            "history": history,
        }
        mv.barrier()
    worker.report(**{name: result})


def statistics():
    """Statistics are averaged, taken from the master, or left to each worker."""
    with mv.session():
        me = mv.worker_id()
        seen = {}
        for choice in ("average", "master", False):
            model = model_of()
            statistic = model.layers[1].moving_mean
            statistic.assign(np.full(4, 100 + me))  # only the master's value is used
            manager = KerasParamManager(model, choice)
            statistic.assign(statistic + 6 * (me + 1))
            manager.sync_all_param()
            mv.barrier()
            manager.sync_all_param()
            mv.barrier()
            seen[str(choice)] = keras.ops.convert_to_numpy(statistic).tolist()
        worker.report(statistics=seen)


def restored():
    """Set weights on workers other than the master, which must not be added."""
    with mv.session():
        model = model_of(learning_rate=0.0)
        callback = MVCallback(model, sync_non_trainable=False)
        start = callback.manager.tables[0].get(sync=True)
        if not mv.is_master_worker():
            model.set_weights([weight + 7 for weight in model.get_weights()])
        x = np.ones((8, 3), np.float32)
        model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
        mv.barrier()
        worker.report(restored=bool((callback.manager.tables[0].get() == start).all()))


def wrong():
    """Make errors on one rank, which must reach every rank."""
    with mv.session():
        model = model_of()
        worker.report_call(lambda: MVCallback(model, freq=0 if mv.rank() == 0 else 1), name="freq")
        other = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        worker.report_call(
            lambda: KerasParamManager(other if mv.rank() == 0 else model), name="model"
        )


for mode in MODES:
    fitting(mode, mode)
fitting("sync", "sync again")
statistics()
restored()
wrong()
