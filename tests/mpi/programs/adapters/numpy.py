"""Arrays of NumPy, synchronized by ParamSync, for adapter_suite.py."""

import itertools
import pickle

import ml_dtypes  # noqa: F401 (it gives NumPy bfloat16)
import numpy as np
from adapters.base import ManagedModel

from multiverso.sync import ParamSync


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16", "bfloat16", "mixed")

    def __init__(self, shapes, dtype, value):
        dtypes = itertools.cycle(self.DTYPES[:3] if dtype == "mixed" else (dtype,))
        self.arrays = [np.full(shape, value, next(dtypes)) for shape in shapes]
        # Every second array is not contiguous.
        self.arrays[1::2] = [np.stack([array] * 2, axis=-1)[..., 0] for array in self.arrays[1::2]]

    def attach(self, **options):
        self.manager = ParamSync(self.arrays, **options)

    def values(self):
        return values_of(self.arrays)

    def add(self, delta):
        for array in self.arrays:
            array += array.dtype.type(delta)

    def sync(self):
        self.manager.sync()

    def saved_and_loaded(self, folder):
        return values_of(pickle.loads(pickle.dumps(self.arrays)))  # safe: its own bytes


def values_of(arrays):
    return np.concatenate([np.ravel(array).astype(np.float64) for array in arrays])


def descend(inputs, steps, rate, average):
    weights = np.ones(2)
    sync = ParamSync([weights], average=average)
    for _ in range(steps):
        weights -= rate * inputs
        sync.sync()
    return weights
