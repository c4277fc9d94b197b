"""Keras models that all workers train, on the backend of KERAS_BACKEND; each rank reports them."""

import worker

worker.begin()

import keras  # noqa: E402
import numpy as np  # noqa: E402

import multiverso as mv  # noqa: E402
from multiverso.keras_ext import MVCallback, shard  # noqa: E402

MODES = {"async": {}, "sync": {"sync": True}, "stale": {"staleness": 2}}


def make_model(learning_rate=0.05):
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


def flat_weights(model):
    arrays = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    return np.concatenate([array.ravel() for array in arrays])


def table_values(manager):
    return np.concatenate([table.get() for table in manager.tables])


def train(freq):
    """Train on this worker's part of the data; return the model, its callback and its history."""
    keras.utils.set_random_seed(1 + mv.worker_id())
    x = np.random.default_rng(5).normal(size=(60, 3)).astype(np.float32)
    x, y = shard(x, x.sum(axis=1, keepdims=True))
    model = make_model()
    callback = MVCallback(model, freq=freq, average_metrics=True)
    history = model.fit(x, y, batch_size=4, epochs=4, verbose=0, callbacks=[callback]).history
    mv.barrier()
    callback.sync()
    return model, callback, history


def report_fit(mode, name):
    """Report the weights, whether they equal the tables' values, and the metrics of a training."""
    with mv.session(**MODES[mode]):
        model, callback, history = train(freq=2)
        weights, values = flat_weights(model), table_values(callback.manager)
        result = {
            "equals_tables": np.array_equal(np.sort(weights), np.sort(values)),
            "weights": weights.tolist(),
            "history": history,
        }
        mv.barrier()
    worker.report(**{name: result})


def report_restored_weights():
    """Report whether a `fit` ignores weights that workers other than the master have set."""
    with mv.session():
        model = make_model(learning_rate=0.0)
        callback = MVCallback(model, sync_non_trainable=False)
        start = callback.manager.tables[0].get(sync=True)
        if not mv.is_master_worker():
            model.set_weights([weight + 7 for weight in model.get_weights()])
        x = np.ones((8, 3), np.float32)
        model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
        mv.barrier()
        worker.report(tables_unchanged=bool((callback.manager.tables[0].get() == start).all()))


def report_errors():
    """Report the error that each rank gets when rank 0 passes a wrong argument."""
    with mv.session():
        model = make_model()
        worker.report_call(lambda: MVCallback(model, freq=0 if mv.rank() == 0 else 1), name="freq")


for mode in MODES:
    report_fit(mode, mode)
report_fit("sync", "sync again")
report_restored_weights()
report_errors()
