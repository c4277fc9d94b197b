"""Random programs of calls on tables, which run on all ranks of a job or in one process."""

import collections
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import configurations
import multiverso as mv
from machine import adds, gets, old_checkpoint, sessions  # noqa: F401 (they register calls)
from machine.operations import OPERATIONS
from machine.pairwise import pairwise_sum
from machine.tables import draw, draw_old
from multiverso._native.supported import refusal_of


class Twin:
    """A table of a program and its model."""

    def __init__(self, program, spec, number, name):
        self.spec, self.number, self.name = spec, number, name
        self.model = spec.model(number, program.workers)
        self.ids = spec.keys() if spec.kind == "keys" else np.arange(spec.shape[0])
        self.backing = program.folder / name if spec.on_disk else None
        self.create(program, self.model.values.reshape(spec.shape))

    def create(self, program, initial):
        """Create the table in a new session; all but one worker pass no initial values."""
        start = initial if program.me <= 0 else None
        if self.spec.kind != "keys" and program.me < 0:
            start = None
        # A folder belongs to tables of one capacity, and a checkpoint to those of any.
        room = 4000 if self.spec.on_disk else program.rng.choice((4000, 3000, 20_000))
        self.table = self.spec.create(self.name, start, self.backing, room)
        self.in_buffer = np.zeros(self.spec.shape, self.spec.value_dtype)
        self.prepared, self.version, self.futures = None, 0, []
        #: The adds of each worker, of which staleness limits the differences.
        self.counts = [0] * program.workers
        refusal = refusal_of(*program.features, *self.spec.features(), "live view")
        self.live = self.table.view(live=True) if refusal is None and program.me >= 0 else None
        if self.spec.kind != "keys":
            self.copy = self.model.initial.reshape(self.spec.shape).copy()

    def values(self):
        """Return the values in the shape of the table."""
        return self.model.values.reshape(self.spec.shape)


class Program:
    """A random program: its session, its tables, and what has been called.

    Parameters
    ----------
    rng : random.Random
        The choices, the same on all ranks.
    seed : int
        The seed of the numbers.
    folder : Path
        A folder that all ranks see.
    **options : object
        Options of the sessions.

    """

    def __init__(self, rng, seed, folder, **options):
        self.rng = self.own = rng
        self.seed, self.folder = seed, Path(folder)
        self.configuration = configurations.current()
        self.options = {"name": f"machine-{self.folder.name}", **options}
        self.trace, self.calls, self.skipped = [], collections.Counter(), collections.Counter()
        self.saved, self.step, self.num_published, self.follower = [], 0, 0, None
        self.open_session()
        self.is_strict = self.configuration.session.get("nan_policy") == "error"
        self.may_be_special = not self.is_strict and rng.random() < 0.2
        self.twins = []
        for number in range(rng.choice((1, 1, 2, 3))):
            self.twins.append(self._twin(number))
        self.barrier()

    def open_session(self):
        session = configurations.open_session(**self.options)
        self.rank = session.rank
        self.me, self.workers, self.nodes = mv.worker_id(), mv.num_workers(), session.num_nodes
        self.features = session.features()
        self.in_rounds = "sync" in self.features
        self.staleness = self.configuration.session.get("staleness", 0)
        self.active = list(range(self.workers))
        if session.size > 1:
            self.own = random.Random(f"{self.seed} {session.rank}")

    def _twin(self, number):
        if self.configuration.checkpoint is None:
            spec = draw(
                self.rng,
                self.configuration.tables,
                self.features,
                self.skipped,
                turn=self.seed if number == 0 else None,
            )
            twin = Twin(self, spec, number, f"w{number}")
        else:
            names = [twin.name for twin in self.twins]
            spec = draw_old(self.rng, self.features, names, self.skipped)
            twin = Twin(self, spec, number, spec.old_name)
            twin.table.load(configurations.FOLDER / self.configuration.checkpoint)
            old_checkpoint.train(spec.old_name, twin.model)
        self.trace.append(f"table {number}: {spec}")
        return twin

    def run(self, name):
        """Run an operation on a table that has it; return whether there is one."""
        chosen = OPERATIONS[name]
        twins = [twin for twin in self.twins if twin.spec.kind in chosen.kinds]
        if not twins:
            return False
        twin = self.rng.choice(twins)
        concerned = self.twins if "publish" in chosen.features else [twin]
        for each in concerned:
            refusal = refusal_of(*self.features, *each.spec.features(), *chosen.features)
            if refusal is not None:
                self.skipped[refusal.sentence] += 1
                return False
        self.trace.append(f"{name} {twin.name}")
        if chosen.run(self, twin) is False:
            return False
        self.calls[name] += 1
        return True

    # What operations use.

    def numbers(self, worker):
        """Return the generator of the numbers of a worker in the current operation."""
        return np.random.default_rng([self.seed, len(self.trace), worker])

    def barrier(self):
        """Wait for all ranks."""
        mv.barrier()

    def dawdle(self):
        """Sleep at random, so that other ranks get ahead."""
        if self.workers > 1 and self.own.random() < 0.05:
            time.sleep(self.own.random() * 2e-3)

    def one(self):
        """Return a worker that has not finished, the same on all ranks."""
        return self.rng.choice(self.active)

    def even(self, twin):
        """Return the workers for one add of each that has not finished."""
        twin.counts = [count + 1 for count in twin.counts]
        return self.active

    def end_turn(self, always=False):
        """Wait for the worker whose turn it was; in rounds all workers go on."""
        if always or not self.in_rounds:
            self.barrier()

    def _turn(self, twin):
        """Return the workers that add now: all in rounds, otherwise one that need not wait."""
        if self.in_rounds:
            return self.active
        least = min(twin.counts[worker] for worker in self.active)
        may = [
            w for w in self.active if not self.staleness or twin.counts[w] < least + self.staleness
        ]
        who = self.rng.choice(may)
        twin.counts[who] += 1
        return [who]

    def add(self, twin, draw_add, call, part=None, ends=True):
        """Let the workers add whose turn it is, and return them.

        `draw_add` returns the rows and the delta of a worker, and `call` makes the call with them.
        """
        made = {}
        for worker in self._turn(twin):
            rows, delta = made[worker] = draw_add(worker)
            if worker == self.me:
                self.dawdle()
                if self.own.random() < 0.1:
                    with ThreadPoolExecutor(1) as pool:
                        pool.submit(call, rows, delta.copy()).result()
                else:
                    call(rows, delta.copy())
        if part is not None:
            deltas = [made[worker][1] for worker in made]
            twin.model.note_errors(deltas)
            with np.errstate(all="ignore"):
                twin.model.add_part(pairwise_sum(deltas), part, min(made), len(made))
        elif self.in_rounds:
            twin.model.add_round([made.get(worker) for worker in range(self.workers)])
        else:
            for worker, (rows, delta) in made.items():
                twin.model.add(delta, rows, worker)
        if ends:
            self.end_turn()
        return list(made)

    def get(self, twin, read, expected, part=..., ends=True):
        """Let all workers get that have not finished, and compare the result."""
        if self.me in self.active:
            self.dawdle()
            self.check(twin, read(), expected)
        if part is not None:
            for worker in self.active:
                twin.model.note_get(worker, part)
        if ends:
            self.end_turn()

    def check(self, twin, got, expected):
        """Compare values with the model's, bit by bit unless they travel in another format."""
        got, expected = np.asarray(got), np.asarray(expected)
        if twin.model.error and self.nodes > 1:
            worst = np.abs(got.astype(float) - expected).max(initial=0)
            assert worst <= twin.model.error, (worst, twin.model.error)
        else:
            self.same(got, expected)

    def same(self, got, expected):
        """Compare two arrays bit by bit; the bits of NaN depend on the processor."""
        got, expected = np.asarray(got), np.asarray(expected)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (got, expected)
        if got.tobytes() != expected.tobytes():
            np.testing.assert_array_equal(got, expected)
            numbers = ~np.isnan(got)
            signs = np.signbit(got[numbers]) == np.signbit(expected[numbers])
            assert signs.all(), "equal, but zeros have other signs"

    def raises(self, error, call, *texts):
        """Check that a call raises an error with these texts."""
        with pytest.raises(error) as caught:
            call()
        assert all(text in str(caught.value) for text in texts), (texts, caught.value)

    def settle(self, twin):
        """Wait until all adds to a table are applied, and check its values on all workers."""
        is_collective = self.rng.random() < 0.2
        self.barrier()
        for future, expected in twin.futures:
            self.check(twin, future.result(), expected)
        twin.futures.clear()
        if self.me >= 0:
            if twin.spec.kind == "keys":
                rows = twin.table.get(twin.ids, insert=False)
                self.check(twin, rows, twin.model.values)
            else:
                view = self.own.random() < 0.3 and not is_collective
                got = twin.table.view() if view else twin.table.get(sync=is_collective)
                self.check(twin, got, twin.values())
                if twin.live is not None:
                    self.check(twin, twin.live.astype(twin.spec.value_dtype), twin.values())
        for worker in range(self.workers):
            twin.model.note_get(worker)
        self.barrier()

    def even_out(self):
        """Let all workers make equally many adds, whose numbers a checkpoint contains."""
        for twin in self.twins:
            while self.staleness and len({twin.counts[worker] for worker in self.active}) > 1:
                least = min(self.active, key=lambda worker: twin.counts[worker])
                twin.counts[least] += 1
                if self.me == least and twin.spec.kind == "array":
                    twin.table.add(np.zeros(twin.spec.shape, twin.spec.value_dtype))
                if twin.spec.kind == "array":
                    twin.model.add(np.zeros(twin.spec.rows_shape, twin.spec.value_dtype))
                elif self.me == least:
                    empty = np.empty((0, twin.spec.shape[1]), twin.spec.value_dtype)
                    twin.table.add(empty, np.empty(0, np.int64))
                self.barrier()

    def close_session(self):
        """End the session when all tables have been compared."""
        mv.wait_for_save()
        if self.follower is not None:
            self.follower.close()
            self.follower = None
        self.even_out()
        for twin in self.twins:
            self.settle(twin)
        self.barrier()
        mv.shutdown()


def run(seed, folder, counts=None, **options):
    """Run the program of a seed under the current configuration.

    Parameters
    ----------
    seed : int
        The seed of all choices.
    folder : Path
        An empty folder that all ranks see.
    counts : dict of str to Counter, optional
        Where to count the calls, and what was skipped by sentence.
    **options : object
        Options of the session.

    """
    name = configurations.current().name
    rng = random.Random(f"{name} {seed}")
    program = None
    try:
        program = Program(rng, seed, folder, **options)
        names, calls = list(OPERATIONS), rng.choice((5, 15, 40))
        while calls > 0:
            calls -= program.run(rng.choice(names))
        program.close_session()
    except BaseException as error:
        trace = "\n".join(program.trace if program else [])
        msg = f"configuration {name}, seed {seed}:\n{trace}\n{type(error).__name__}: {error}"
        raise AssertionError(msg) from error
    if counts is not None:
        counts["calls"] += program.calls
        counts["skipped"] += program.skipped
