"""Keras on an installed backend, with one thread for each process.

    from keras_backend import EpochBar, keras

KERAS_BACKEND selects jax, tensorflow or torch; the default is the first that is installed. A job
usually has one worker per core, so more threads would compete for the cores. Your own settings for
the number of threads take precedence.
"""

import importlib.util
import os

from tqdm import tqdm

BACKENDS = ("jax", "torch", "tensorflow")
# PyTorch, JAX and TensorFlow read their number of threads from these variables.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NPROC", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

if "KERAS_BACKEND" not in os.environ:
    installed = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
    if not installed:
        raise ImportError("expected one of jax, torch and tensorflow for Keras, found none")
    os.environ["KERAS_BACKEND"] = installed[0]
for name in THREAD_VARIABLES:
    os.environ.setdefault(name, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hides messages about the processor

import keras  # noqa: E402

__all__ = ["EpochBar", "keras"]


class EpochBar(keras.callbacks.Callback):
    """A progress bar over `epochs` that shows the latest validation error."""

    def __init__(self, epochs):
        super().__init__()
        # disable=None shows the bar only on a terminal.
        self.bar = tqdm(total=epochs, unit="epoch", disable=None)

    def on_epoch_end(self, epoch, logs=None):
        """Advance by one epoch."""
        error = 1 - logs["val_accuracy"]
        self.bar.set_postfix_str(f"validation error {error:.2%}", refresh=False)
        self.bar.update()

    def on_train_end(self, logs=None):
        """Close the bar."""
        self.bar.close()
