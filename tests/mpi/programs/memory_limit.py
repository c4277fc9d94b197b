"""Changes rows, or pins versions, until there is no memory for more, and checks the tables."""

import os
import sys

import numpy as np

import multiverso as mv

ROWS, COLUMNS, BATCH = 30_000_000, 64, 4096


def main():
    """Print what the errors say, when all ranks have got them."""
    with mv.session():
        try:
            mv.ArrayTableHandler(int(sys.argv[1]) // 4)
        except MemoryError as error:
            sys.stdout.write(f"{error}\n")
        initial = mv.initializers.Constant(1)
        table = mv.MatrixTableHandler(ROWS, COLUMNS, initial, updater="adagrad")
        rng = np.random.default_rng(mv.rank())
        own = np.arange(mv.rank(), ROWS, mv.size())
        delta = np.ones((BATCH, COLUMNS), np.float32)
        refusal, added = None, []
        while refusal is None:
            ids = np.unique(rng.choice(own, BATCH))
            try:
                table.add(delta[: len(ids)], ids)
            except MemoryError as error:
                refusal = error
            else:
                added.append(ids)
        refused = np.setdiff1d(ids, np.concatenate(added))
        assert (table.get(refused[:100]) == 1).all()
        assert (table.get(added[0]) < 1).all()
        mv.barrier()
        sys.stdout.write(f"{refusal}\n")


def pins():
    """Publish a table that fits three times: with the buffers of two versions, but not of three."""
    with mv.session(name=f"limited-{os.getpid()}"):
        table = mv.ArrayTableHandler(int(sys.argv[1]) // 100 * 28 // 4, name="array")
        with mv.attach(os.getpid()) as view:
            mv.publish(1)
            with view.pinned() as cut:
                table.add(np.ones(table.size, np.float32))
                mv.publish(2)
                for _ in range(2):
                    try:
                        mv.publish(3)
                    except MemoryError as error:
                        sys.stdout.write(f"{error}\n")
                assert cut["array"].max() == 0
            mv.publish(3)
            with view.pinned() as cut:
                assert (cut.version, cut.step) == (3, 3)
                assert cut["array"].min() == 1


if __name__ == "__main__":
    pins() if "pins" in sys.argv else main()
