"""Keras on whichever backend is here, for tests that do not mind on which."""

import importlib.util
import os
from unittest import mock

#: What Keras runs on here, unless the environment says otherwise.
BACKEND = next(
    (name for name in ("torch", "jax", "tensorflow") if importlib.util.find_spec(name)), None
)


def import_keras():
    """Return Keras, imported when it is needed; it is slow.

    The environment stays as it was: programs that other tests start in it have a backend of their
    own.
    """
    with mock.patch.dict(os.environ):
        os.environ.setdefault("KERAS_BACKEND", BACKEND)
        import keras
    return keras
