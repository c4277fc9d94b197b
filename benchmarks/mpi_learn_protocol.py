"""The updates of mpi_learn: messages through mpi4py, one array at a time, and Adam in NumPy.

This file reimplements the part of mpi_learn's protocol that makes an update. The worker announces
the update, sends the step of its parameters and the gradient of each array, and receives the new
step and each array of new parameters.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ranks import Span

if TYPE_CHECKING:
    from ranks import Ranks

_BEGIN, _STEP, _ARRAY = 11, 12, 13  # tags


class NumPyAdam:
    """Adam on a list of arrays (Kingma and Ba, ICLR 2015)."""

    def __init__(self, sizes: list[int], learning_rate: float = 1e-3) -> None:
        self._rate = learning_rate
        self._m = [np.zeros(size, np.float32) for size in sizes]
        self._v = [np.zeros(size, np.float32) for size in sizes]
        self._step = 0

    def apply(self, weights: list[Any], gradients: list[Any]) -> list[Any]:
        """Return the weights after a step."""
        self._step += 1
        beta_1, beta_2 = np.float32(0.9), np.float32(0.999)
        rate = np.float32(self._rate * (1 - 0.999**self._step) ** 0.5 / (1 - 0.9**self._step))
        self._m = [beta_1 * m + (1 - beta_1) * g for m, g in zip(self._m, gradients, strict=True)]
        self._v = [
            beta_2 * v + (1 - beta_2) * g * g for v, g in zip(self._v, gradients, strict=True)
        ]
        return [
            w - rate * m / (np.sqrt(v) + np.float32(1e-7))
            for w, m, v in zip(weights, self._m, self._v, strict=True)
        ]


class MpiLearnUpdate:
    """An update by rank 1, the only worker of the master on rank 0; other ranks do nothing.

    Parameters
    ----------
    ranks : Ranks
        The processes of this run, two or more.
    sizes : list of int
        Number of float32 elements of each array.
    """

    name = "mpi_learn's protocol"
    statement = "worker: send each gradient, receive each array; master: Adam in NumPy"
    workers = 1

    def __init__(self, ranks: Ranks, sizes: list[int]) -> None:
        self._comm: Any = ranks.comm
        self._mpi: Any = ranks.mpi
        self._rank = ranks.rank
        self._weights = [np.full(size, 0.5, np.float32) for size in sizes]
        self._gradients = [np.full(size, 1e-3, np.float32) for size in sizes]
        self._optimizer = NumPyAdam(sizes)
        self._step = 0

    def run(self, calls: int) -> Span | None:
        """Make `calls` updates; return None except on the worker."""
        if self._rank == 0:
            for _ in range(calls):
                self._serve()
        if self._rank != 1:
            return None
        begin = time.perf_counter()
        for _ in range(calls):
            self._update()
        return Span(begin, time.perf_counter())

    def _update(self) -> None:
        comm = self._comm
        comm.send(None, 0, _BEGIN)
        comm.send(self._step, 0, _STEP)
        for gradient in self._gradients:
            comm.Send(gradient, 0, _ARRAY)
        self._step = comm.recv(source=0, tag=_STEP)
        for weight in self._weights:
            comm.Recv(weight, 0, _ARRAY)

    def _serve(self) -> None:
        comm, status = self._comm, self._mpi.Status()
        comm.recv(source=self._mpi.ANY_SOURCE, tag=_BEGIN, status=status)
        worker = status.Get_source()
        comm.recv(source=worker, tag=_STEP)
        for gradient in self._gradients:
            comm.Recv(gradient, worker, _ARRAY)
        self._weights = self._optimizer.apply(self._weights, self._gradients)
        self._step += 1
        comm.send(self._step, worker, _STEP)
        for weight in self._weights:
            comm.Send(weight, worker, _ARRAY)
