"""A job that publishes to a folder and a reader that follows it, both until they are killed.

Usage: followed.py train|read FOLDER
"""

import sys

import numpy as np

import multiverso as mv

SIZE = 50_000


def delta_of(step):
    """Return what the job adds in a step: integers, so that sums are exact."""
    rng = np.random.default_rng(step)
    return (rng.integers(1, 4, SIZE) * (rng.random(SIZE) < 0.01)).astype(np.float32)


class Model:
    """The table of the job after each step, in ascending order of the steps."""

    def __init__(self):
        self.step, self.values = 0, np.zeros(SIZE, np.float32)

    def check(self, view):
        """Check that a view has the table as of its step, bit for bit."""
        assert view.step >= self.step, (view.step, self.step)
        while self.step < view.step:
            self.step += 1
            self.values += delta_of(self.step)
        assert view.tables["w"].get().tobytes() == self.values.tobytes(), view.step


def train(folder):
    """Begin with what the last job has published, and publish each step."""
    with mv.session(name="killed"):
        table = mv.ArrayTable(SIZE, name="w")
        first = 0
        try:
            with mv.follow(folder) as view:
                first = view.step
                table.add(view.tables["w"].get())
        except mv.errors.StateError:
            pass  # Nothing has been published.
        for step in range(first + 1, first + 1000):
            table.add(delta_of(step))
            mv.publish(step, to=folder, full_every=4, keep=2)


def read(folder):
    """Check each version."""
    model = Model()
    with mv.follow(folder, timeout=60) as view:
        sys.stdout.write("follows\n")
        sys.stdout.flush()
        while True:
            model.check(view)
            view.wait(timeout=60)


if __name__ == "__main__":
    {"train": train, "read": read}[sys.argv[1]](sys.argv[2])
