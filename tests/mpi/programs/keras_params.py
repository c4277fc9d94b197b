"""Cases for models in `fit` of Keras, on the backend of KERAS_BACKEND, beside adapter_suite.py."""

import hashlib

import numpy as np
from cases import equal, raises, registrar, run_all, texts_of_ranks

import multiverso as mv

# Only ranks import these, at the end: pytest reads the names of the cases without Keras.
keras = MVCallback = shard = None

CASES = {}
case = registrar(CASES)


def make_model(learning_rate=0.05):
    """Return a model with batch normalization and different weights on each worker."""
    normal = keras.initializers.RandomNormal
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(4, "tanh", kernel_initializer=normal(seed=mv.worker_id())),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1, kernel_initializer=normal(seed=mv.worker_id())),
        ]
    )
    model.compile(keras.optimizers.SGD(learning_rate), "mse", metrics=["mae"])
    return model


def trained():
    """Train on this worker's part of the data; return what all workers have in common."""
    keras.utils.set_random_seed(1 + mv.worker_id())
    x = np.random.default_rng(5).normal(size=(60, 3)).astype(np.float32)
    x, y = shard(x, x.sum(axis=1, keepdims=True))
    model = make_model()
    callback = MVCallback(model, freq=2, average_metrics=True)
    history = model.fit(x, y, batch_size=4, epochs=4, verbose=0, callbacks=[callback]).history
    mv.barrier()
    callback.sync()
    arrays = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    weights = np.concatenate([array.ravel() for array in arrays])
    values = np.concatenate([table.get() for table in callback.manager.tables])
    equal(np.sort(weights), np.sort(values))
    assert history["loss"][-1] < history["loss"][0], history
    return repr((weights.tolist(), history))


def check_same_on_all_ranks(text):
    digests = texts_of_ranks(hashlib.sha256(text.encode()).hexdigest())
    equal(len(set(digests)), 1)


@case()
def fit_ends_with_all_deltas_on_every_worker():
    check_same_on_all_ranks(trained())


@case(staleness=2)
def fit_ends_with_all_deltas_with_bounded_staleness():
    check_same_on_all_ranks(trained())


@case(sync=True)
def fits_in_rounds_are_bitwise_identical():
    first = trained()
    check_same_on_all_ranks(first)
    equal(trained(), first)


@case()
def weights_restored_on_other_workers_are_not_added():
    model = make_model(learning_rate=0.0)
    callback = MVCallback(model, sync_non_trainable=False)
    start = callback.manager.tables[0].get(sync=True)
    if not mv.is_master_worker():
        model.set_weights([weight + 7 for weight in model.get_weights()])
    x = np.ones((8, 3), np.float32)
    model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
    mv.barrier()
    equal(callback.manager.tables[0].get(), start)


@case()
def a_wrong_frequency_on_one_rank_fails_on_all_ranks():
    error, freq = (ValueError, 0) if mv.rank() == 0 else (mv.errors.MismatchError, 1)
    raises(error, lambda: MVCallback(make_model(), freq=freq))


if __name__ == "__main__":
    import keras

    from multiverso.keras_ext import MVCallback, shard

    run_all(CASES)
