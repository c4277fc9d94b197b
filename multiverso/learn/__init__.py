"""Trains a Keras model on all ranks of a job, with an interface like that of mpi_learn.

    from multiverso.learn import Algo, H5Data, ModelFromJson, MPIManager

    manager = MPIManager(None, H5Data(100), Algo("adam", loss="mse"), ModelFromJson("m.json"),
                         num_epochs=3, train_list=train_files, val_list=val_files)
    history = manager.train()

Workers exchange parameters through tables. By default each worker adds its gradients to the table
of the parameters, whose updater is the optimizer. Importing this package does not import Keras.
"""

from multiverso.learn._environment import choose_backend
from multiverso.learn._input import InputError
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.h5data import H5Data
from multiverso.learn.manager import MPIManager
from multiverso.learn.model import ModelBuilder, ModelFromJson, ModelFromKeras

__all__ = [
    "Algo",
    "Data",
    "H5Data",
    "InputError",
    "MPIManager",
    "ModelBuilder",
    "ModelFromJson",
    "ModelFromKeras",
    "choose_backend",
]
