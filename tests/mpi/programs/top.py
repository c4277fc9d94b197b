"""Ranks that ``multiverso top`` shows: all but the first wait in a barrier."""

import numpy as np
import worker

import multiverso as mv


def main():
    mv.init()
    table = mv.ArrayTableHandler(100, name="seen [red]")
    for _ in range(3):
        table.add(np.ones(100))
    keys = mv.HashTableHandler(2, 50, name="keys")
    keys.get([worker.RANK, 100 + worker.RANK])
    keys.remove([worker.RANK])
    mv.barrier()
    if worker.RANK == 0:
        worker.announce("ready")
        worker.wait_for("seen")
    mv.barrier()
    mv.shutdown()


if __name__ == "__main__":
    worker.begin()
    main()
