"""Imports Keras on a backend that is installed."""

import importlib.util
import os
from unittest import mock

#: The first installed backend; the environment variable KERAS_BACKEND overrides it.
BACKEND = next(
    (name for name in ("torch", "jax", "tensorflow") if importlib.util.find_spec(name)), None
)


def import_keras():
    """Import and return Keras.

    KERAS_BACKEND stays unchanged, because programs of other tests choose their own backend.
    """
    with mock.patch.dict(os.environ):
        os.environ.setdefault("KERAS_BACKEND", BACKEND)
        import keras
    return keras
