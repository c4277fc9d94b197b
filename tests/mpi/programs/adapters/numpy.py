"""Arrays of NumPy, synchronized by ParamSync, for adapter_suite.py."""

import pickle

import numpy as np
from adapters.base import ManagedModel

from multiverso.sync import ParamSync


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16")

    def __init__(self, shapes, dtype, value):
        self.arrays = [np.full(shape, value, dtype) for shape in shapes]

    def attach(self, **options):
        self.manager = ParamSync(self.arrays, **options)

    def values(self):
        return np.concatenate([array.ravel() for array in self.arrays])

    def add(self, delta):
        for array in self.arrays:
            array += delta

    def sync(self):
        self.manager.sync()

    def saved_and_loaded(self, folder):
        loaded_arrays = pickle.loads(pickle.dumps(self.arrays))  # safe: its own bytes
        return np.concatenate([array.ravel() for array in loaded_arrays])
