"""Random programs in sync mode, against the model of `round_model`."""

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
    pace : str
        Seed of the details that may differ between runs: delays, which deltas are in a table's
        delta buffer, the choice of calls that read a state, and the order of calls on different
        tables where it is free.

    """

    def __init__(self, program, models, pace):
        self.program = program
        self.models = models
        self.me = mv.worker_id()
        self.rng = random.Random(f"{pace} {mv.rank()}")
        self.adds_made = [0] * len(models)  # to each table
        self.tables = [self._create(i) for i in range(len(models))]
        self.in_buffer = [np.zeros(table.shape, table.dtype) for table in self.tables]

    def _create(self, table_index):
        spec = self.program.specs[table_index]
        # Only the master's initial values are used, but every rank passes an initializer.
        initial = spec.initializer
        if initial is None and self.me == 0:
            initial = self.program.initial(table_index)
        options = (
            {}
            if spec.learning_rate is None
            else {"updater": "sgd", "learning_rate": spec.learning_rate}
        )
        kind = mv.ArrayTableHandler if len(spec.shape) == 1 else mv.MatrixTableHandler
        return kind(*spec.shape, initial, dtype=spec.dtype, **options)

    def run(self):
        """Run all phases; then compare the final tables."""
        for phase in self.program.phases:
            if self.me in phase.workers:
                self._make_calls(phase)
                continue
            mv.finish()
            if self.me >= 0:
                self._check_as_finished_worker()
        mv.barrier()
        if self.me >= 0:
            for table, model in zip(self.tables, self.models, strict=True):
                same_bits(table.get(), model.states[-1])
        mv.barrier()

    def _make_calls(self, phase):
        makes_add_get = self._makes_add_get(phase)
        adds = [[i] * (rounds - makes_add_get[i]) for i, rounds in enumerate(phase.rounds)]
        gets = [[i] * (count - makes_add_get[i]) for i, count in enumerate(phase.gets)]
        for table_index in self._ordered(adds, phase.any_order):
            self._add(table_index, phase.any_order)
        for table_index, add_get in enumerate(makes_add_get):
            if add_get:
                self._add_get(table_index)
        for table_index in self._ordered(gets, phase.any_order):
            self._get(table_index)

    def _makes_add_get(self, phase):
        """Return for each table whether this worker makes its last add and first get in one call.

        Other workers may make two calls instead. All workers that wait do so for the same table.
        """
        makes_add_get = []
        for i, (rounds, gets) in enumerate(zip(phase.rounds, phase.gets, strict=True)):
            may = rounds > 0 and gets > 0 and not phase.any_order and sum(phase.rounds) == rounds
            ids = self.program.add(i, self.adds_made[i] + rounds - 1, self.me)[0] if may else ()
            makes_add_get.append(may and ids is None and self.rng.random() < 0.7)
        return makes_add_get

    def _ordered(self, calls, any_order):
        """Return the table of each call, in the order of the tables or in a random order."""
        flat = [table_index for calls_of_table in calls for table_index in calls_of_table]
        if any_order:
            self.rng.shuffle(flat)
        return flat

    def _next_add(self, table_index):
        ids, delta = self.program.add(table_index, self.adds_made[table_index], self.me)
        self.adds_made[table_index] += 1
        dawdle(self.rng)
        return ids, delta

    def _in_buffer(self, table_index, delta):
        """Return the table's delta buffer, set to `delta`."""
        buffer = self.tables[table_index].delta_buffer()
        same_bits(buffer, self.in_buffer[table_index])
        buffer[...] = self.in_buffer[table_index][...] = delta
        return buffer

    def _add(self, table_index, any_order):
        ids, delta = self._next_add(table_index)
        if ids is not None:
            self.tables[table_index].add(delta, ids)
        # A delta buffer may wait for adds that others make after calls on other tables.
        elif not any_order and self.rng.random() < 0.5:
            self.tables[table_index].add(self._in_buffer(table_index, delta))
        else:
            self.tables[table_index].add(delta)
        delta.fill(99)  # a caller may reuse its array after the add

    def _add_get(self, table_index):
        delta = self._next_add(table_index)[1]
        is_in_buffer = self.rng.random() < 0.5
        if is_in_buffer:
            delta = self._in_buffer(table_index, delta)
        out = self.rng.choice((None, delta, np.empty_like(delta)))
        self._check(table_index, self.tables[table_index].add_get(delta, out=out))
        if is_in_buffer:
            self.in_buffer[table_index][...] = delta

    def _view(self, table_index):
        view = self.tables[table_index].view()
        self._check(table_index, view)
        assert not view.flags.writeable
        dawdle(self.rng)
        self._check(table_index, view)  # the others may be at their next calls

    def _get(self, table_index):
        dawdle(self.rng)
        table = self.tables[table_index]
        if self.rng.random() < 0.3:
            self._view(table_index)
            return
        if len(table.shape) == 1 or self.rng.random() < 0.5:
            self._check(table_index, table.get(sync=self.rng.random() < 0.3))
            return
        ids = [self.rng.randrange(table.shape[0]) for _ in range(self.rng.randrange(8))]
        same_bits(table.get(ids), self.models[table_index].states[self.adds_made[table_index]][ids])

    def _check(self, table_index, got):
        same_bits(got, self.models[table_index].states[self.adds_made[table_index]])

    def _check_as_finished_worker(self):
        """Check that a finished worker sees the state after some complete round."""
        for table_index, (table, model) in enumerate(zip(self.tables, self.models, strict=True)):
            states = [state.tobytes() for state in model.states]
            for got in (table.get(), table.view()):
                assert got.tobytes() in states, f"table {table_index} is between two rounds"


def random_program(seed, finishes=False, roles=None):
    roles = roles or ["all"] * worker.SIZE
    num_workers = sum(role != "server" for role in roles)
    program = Program(seed, num_workers, finishes)
    models = program.models()
    for pace in range(2):
        mv.shutdown()
        mv.init(sync=True, role=roles[worker.RANK], timeout=TIMEOUT)
        Run(program, models, f"{seed} {pace}").run()


@case(sync=True)
def random_programs_agree_with_a_model():
    for_seeds(random_program)


@case(sync=True)
def random_programs_in_which_workers_finish_agree_with_a_model():
    for_seeds(random_program, True)


@case(sync=True)
def random_programs_with_roles_agree_with_a_model():
    def with_roles(seed):
        rng = random.Random(f"roles {seed}")
        roles = [rng.choice(("all", "worker", "server")) for _ in range(worker.SIZE)]
        roles[rng.randrange(worker.SIZE)] = "all"  # a session needs a worker and a server
        random_program(seed, rng.random() < 0.5, roles)

    for_seeds(with_roles)
