#!/usr/bin/env python
"""Train a Keras model from HDF5 files on all ranks of a job: `multiverso-learn train`.

    python BuildModel.py mnist
    python models/get_mnist.py
    mpirun -np 3 ./MPIDriver.py mnist_arch.json train_mnist.list test_mnist.list \
        --loss categorical_crossentropy --epochs 3

Rank 0 is the master and the others are workers; without mpirun, one process is both. Instead of
mpirun, `multiverso run -np 3` and `torchrun --nproc-per-node 3` start the ranks without MPI.
"""

import sys

from multiverso.learn.command import train

if __name__ == "__main__":
    sys.exit(train())
