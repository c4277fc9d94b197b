"""Keras on whichever of its backends is installed, with one thread for each process.

    from keras_backend import EpochBar, keras

KERAS_BACKEND names one of jax, tensorflow and torch; otherwise it is the first that is installed.
The workers of a job are as many as there are cores, so that more threads would be in each other's
way. Settings of your own for the number of threads win over these.
"""

import importlib.util
import os

from tqdm import tqdm

BACKENDS = ("jax", "torch", "tensorflow")
# What torch, JAX and TensorFlow take the number of their threads from.
THREADS = ("OMP_NUM_THREADS", "NPROC", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

if "KERAS_BACKEND" not in os.environ:
    found = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
    if not found:
        raise ImportError("expected one of jax, torch and tensorflow for Keras, found none")
    os.environ["KERAS_BACKEND"] = found[0]
for name in THREADS:
    os.environ.setdefault(name, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # what TensorFlow says of the processor

import keras  # noqa: E402

__all__ = ["EpochBar", "keras"]


class EpochBar(keras.callbacks.Callback):
    """A bar that grows by one for each epoch, with the error of its validation beside it.

    Parameters
    ----------
    epochs : int
        How many there will be.
    """

    def __init__(self, epochs):
        super().__init__()
        # tqdm shows nothing where the standard error is no terminal.
        self.bar = tqdm(total=epochs, unit="epoch", disable=None)

    def on_epoch_end(self, epoch, logs=None):
        """Grow."""
        error = 1 - logs["val_accuracy"]
        self.bar.set_postfix_str(f"validation error {error:.2%}", refresh=False)
        self.bar.update()

    def on_train_end(self, logs=None):
        """Stay as it is."""
        self.bar.close()
