"""Random programs in sync mode, against the model of `round_model`."""

import hashlib
import random

import numpy as np
import worker
from cases import TIMEOUT
from modes import case, dawdle, for_seeds, same_bits
from round_model import Program

import multiverso as mv


class Run:
    """A random program, run by this rank in an open session.

    Parameters
    ----------
    program : Program
        The program to run.
    models : list of TableModel
        The expected contents of its tables after each round.
    pace : int
        Seed of the details that may differ between runs: delays, and the order of calls on
        different tables where it is free.

    """

    def __init__(self, program, models, pace):
        self.program = program
        self.models = models
        self.me = mv.worker_id()
        self.rng = random.Random(f"{pace} {mv.rank()}")
        self.made = [0] * len(models)  # adds to each table
        self.digest = (
            hashlib.sha256()
        )  # of all values read, except those that depend on other workers' pace
        self.tables = [self._create(i) for i in range(len(models))]

    def _create(self, number):
        spec = self.program.specs[number]
        # Only the master's initial value is used.
        initial = self.program.initial(number) if self.me == 0 else None
        options = {} if spec.rate is None else {"updater": "sgd", "learning_rate": spec.rate}
        kind = mv.ArrayTableHandler if len(spec.shape) == 1 else mv.MatrixTableHandler
        return kind(*spec.shape, initial, dtype=spec.dtype, **options)

    def go(self):
        """Run all phases; then compare the final tables."""
        for phase in self.program.phases:
            if self.me in phase.workers:
                self._make_calls(phase)
                continue
            mv.finish()
            if self.me >= 0:
                self._look_from_outside()
        mv.barrier()
        if self.me >= 0:
            for table, model in zip(self.tables, self.models, strict=True):
                same_bits(table.get(), model.states[-1])
        mv.barrier()

    def _make_calls(self, phase):
        fused = self._fused(phase)
        adds = [[i] * (rounds - fused[i]) for i, rounds in enumerate(phase.rounds)]
        gets = [[i] * (count - fused[i]) for i, count in enumerate(phase.gets)]
        for number in self._ordered(adds, phase.any_order):
            self._add(number)
        for number, together in enumerate(fused):
            if together:
                self._add_get(number)
        for number in self._ordered(gets, phase.any_order):
            self._get(number)

    def _fused(self, phase):
        """Return for each table whether this worker makes its last add and first get in one call.

        The others need not. But all workers that wait do so for the same table.
        """
        fused = []
        for i, (rounds, gets) in enumerate(zip(phase.rounds, phase.gets, strict=True)):
            can = rounds > 0 and gets > 0 and not phase.any_order and sum(phase.rounds) == rounds
            ids = self.program.add(i, self.made[i] + rounds - 1, self.me)[0] if can else ()
            fused.append(can and ids is None and self.rng.random() < 0.7)
        return fused

    def _ordered(self, calls, any_order):
        """Return the table of each call, in table order or in an order of this worker's own."""
        flat = [number for some in calls for number in some]
        if any_order:
            self.rng.shuffle(flat)
        return flat

    def _next_add(self, number):
        ids, delta = self.program.add(number, self.made[number], self.me)
        self.made[number] += 1
        dawdle(self.rng)
        return ids, delta

    def _add(self, number):
        ids, delta = self._next_add(number)
        if ids is None:
            self.tables[number].add(delta)
        else:
            self.tables[number].add(delta, ids)
        delta.fill(99)  # the caller may reuse its array

    def _add_get(self, number):
        delta = self._next_add(number)[1]
        out = self.rng.choice((None, delta, np.empty_like(delta)))
        self._check(number, self.tables[number].add_get(delta, out=out))

    def _get(self, number):
        dawdle(self.rng)
        table = self.tables[number]
        if len(table.shape) == 1 or self.rng.random() < 0.5:
            self._check(number, table.get(sync=self.rng.random() < 0.3))
            return
        ids = [self.rng.randrange(table.shape[0]) for _ in range(self.rng.randrange(8))]
        same_bits(table.get(ids), self.models[number].states[self.made[number]][ids])

    def _check(self, number, got):
        same_bits(got, self.models[number].states[self.made[number]])
        self.digest.update(got.tobytes())

    def _look_from_outside(self):
        """Check that a finished worker sees the state after some complete round."""
        for number, (table, model) in enumerate(zip(self.tables, self.models, strict=True)):
            got = table.get().tobytes()
            states = [state.tobytes() for state in model.states]
            assert got in states, f"table {number}: what no round left"


def _random_program(seed, finishes=False, roles=None):
    roles = roles or ["all"] * worker.SIZE
    num_workers = sum(role != "server" for role in roles)
    program = Program(seed, num_workers, finishes)
    models = program.models()
    digests = []
    for pace in range(2):
        mv.shutdown()
        mv.init(sync=True, role=roles[worker.RANK], timeout=TIMEOUT)
        run = Run(program, models, f"{seed} {pace}")
        run.go()
        digests.append(run.digest.hexdigest())
    return digests


@case(sync=True)
def random_programs_agree_with_a_model():
    for_seeds(_random_program)


@case(sync=True)
def random_programs_in_which_workers_finish_agree_with_a_model():
    for_seeds(_random_program, True)


@case(sync=True)
def random_programs_with_roles_agree_with_a_model():
    def with_roles(seed):
        rng = random.Random(f"roles {seed}")
        roles = [rng.choice(("all", "worker", "server")) for _ in range(worker.SIZE)]
        roles[rng.randrange(worker.SIZE)] = "all"  # a session needs a worker and a server
        _random_program(seed, rng.random() < 0.5, roles)

    for_seeds(with_roles)
