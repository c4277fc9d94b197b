"""Cases that compare the updaters, on any number of ranks, bitwise with their NumPy model."""

import numpy as np
from cases import SEED, equal, goes, raises, registrar, run_all
from initializer_model import initial_values
from modes import same_bits
from pairwise import pairwise_sum
from updater_model import OPTIONS, Model, accepts, features_of

import multiverso as mv
from multiverso.sync import ParamSync
from multiverso.tables._updaters import UPDATERS

CASES = {}

case = registrar(CASES)

SHAPES = ((33_001,), (5,), (37, 8), (300, 70), (3, 20_000))

#: Of tables with an initializer or 16-bit parameters: smaller, since most of the time goes to the
#: model. The array and the second matrix have several stripes.
VARIANT_SHAPES = ((20_001,), (37, 8), (300, 70))


#: The updaters of which cases with 16-bit parameters run: one for each way to use the state.
HALF_OPTIONS = {
    name: OPTIONS[name]
    for name in ("add", "momentum", "adam", "easgd", "dcasgda", "rowwise_adagrad", "rowwise_adam")
}


def updaters_of(shape, initializer=None, stored=None):
    """Yield the names and options of the updaters that such a table of this session can have."""
    lazy = ("lazy",) if initializer else ()
    for name, options in (HALF_OPTIONS if stored else OPTIONS).items():
        if accepts(name, shape) and goes(*features_of(name), *lazy):
            yield name, options


def table_of(name, start, initializer=None, stored=None, **options):
    kind = mv.ArrayTableHandler if start.ndim == 1 else mv.MatrixTableHandler
    initial = start if initializer is None else initializer
    return kind(*start.shape, initial, dtype=stored or start.dtype, updater=name, **options)


def model_of(name, start, stored=None, **options):
    rows = start[None] if start.ndim == 1 else start
    return Model(name, rows, mv.num_workers(), stored, **options)


def rows_of(delta, start):
    return delta[None] if start.ndim == 1 else delta


@case()
def workers_taking_turns_match_one_program_bitwise(initializer=None, stored=None, **more):
    rng = np.random.default_rng(SEED)  # the same on every rank
    for index, shape in enumerate(VARIANT_SHAPES if initializer or stored else SHAPES):
        for name, options in updaters_of(shape, initializer, stored):
            if not more.keys() <= UPDATERS[name][1].keys():
                continue
            options = options | more
            dtype = "float32" if stored else ("float32", "float64")[index % 2]
            start = rng.standard_normal(shape).astype(dtype)
            if initializer is not None:
                start = initial_values(initializer, shape, start.dtype)
            table = table_of(name, start, initializer, stored, **options)
            model = model_of(name, start, stored, **options)
            for turn in range(2 * mv.num_workers()):
                who = turn % mv.num_workers()
                # A worker that has received values adds after others have changed them.
                gets = (turn // mv.num_workers() + who) % 2 == 1
                delta = rng.standard_normal(shape).astype(start.dtype)
                ids = None
                if start.ndim == 2 and turn % 3:
                    ids = rng.integers(0, shape[0], 5)
                    ids = np.unique(ids) if name == "easgd" else ids
                    delta = (
                        delta[: len(ids)]
                        if shape[0] >= 5
                        else np.resize(delta, (len(ids), shape[1]))
                    )
                if who == mv.worker_id():
                    _add(table, delta, ids, gets)
                model.add(rows_of(delta, start), ids, who)
                if ids is None and gets:
                    model.get(who)
                mv.barrier()
            same_bits(table.get().reshape(model.values.shape), model.get())
            mv.barrier()


def _add(table, delta, ids, gets):
    if ids is not None:
        table.add(delta, ids)
    elif gets:
        table.add_get(delta)
    else:
        table.add(delta)


@case()
def workers_taking_turns_on_lazy_rows_match_one_program_bitwise():
    workers_taking_turns_match_one_program_bitwise(mv.initializers.RandomNormal(seed=SEED))


@case()
def workers_taking_turns_on_16_bit_parameters_match_one_program_bitwise():
    workers_taking_turns_match_one_program_bitwise(stored="bfloat16")


@case(staleness=2)
def turns_with_bounded_staleness_on_lazy_16_bit_rows_match_one_program_bitwise():
    workers_taking_turns_match_one_program_bitwise(
        mv.initializers.RandomNormal(seed=SEED), stored="float16"
    )


@case(staleness=2)
def turns_with_bounded_staleness_match_one_program_bitwise():
    workers_taking_turns_match_one_program_bitwise()


@case()
def gradients_of_workers_taking_turns_are_clipped_to_a_norm():
    workers_taking_turns_match_one_program_bitwise(clipnorm=3)


@case(staleness=2)
def gradients_for_lazy_16_bit_rows_are_clipped_to_a_norm():
    workers_taking_turns_match_one_program_bitwise(
        mv.initializers.RandomNormal(seed=SEED), stored="bfloat16", clipnorm=3
    )


@case()
def gradients_of_keys_are_clipped_to_a_norm_as_those_of_rows():
    rng = np.random.default_rng(SEED)  # the same on every rank
    keys = rng.permutation(np.unique(rng.integers(-(2**63), 2**63, 60)))
    options = OPTIONS["adam"] | {"clipnorm": 3}
    table = mv.HashTableHandler(5, 60, mv.initializers.Zeros(), updater="adam", **options)
    model = Model("adam", np.zeros((60, 5), np.float32), **options)
    for turn in range(4 * mv.num_workers()):
        ids = rng.choice(60, (1, 7, 90)[turn % 3])
        # The sums of squares of these numbers are exact, in any order of the keys.
        delta = rng.integers(-8, 9, (len(ids), 5)).astype(np.float32) / 8
        if turn % mv.num_workers() == mv.worker_id():
            table.add(delta, keys[ids])
        model.add(delta, ids)
        mv.barrier()
    same_bits(table.get(keys, insert=False), model.values)


@case(sync=True)
def clipnorm_cannot_be_set_on_any_rank_in_sync_mode():
    table = table_of("sgd", np.zeros(4))
    raises(ValueError, lambda: table.set_option(clipnorm=1), "clipnorm: expected 0 in sync mode")


@case()
def concurrent_updates_are_all_applied_and_counted():
    # All updates have the same gradient, so their order does not matter. Each must be applied, with
    # the step number of its row.
    turns = 20
    for name in ("momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "ftrl"):
        for shape in ((33_001,), (700, 24), (2, 20_000)):
            table = table_of(name, np.ones(shape), **OPTIONS[name])
            model = Model(name, np.ones((1, 1)), **OPTIONS[name])
            mv.barrier()
            for _ in range(turns):
                table.add(np.full(shape, 0.5))
            mv.barrier()
            for _ in range(turns * mv.num_workers()):
                model.add(np.full((1, 1), 0.5))
            equal(table.get(), np.full(shape, model.values[0, 0]))
            mv.barrier()


@case()
def options_change_for_all_ranks():
    table = mv.ArrayTableHandler(40_000, updater="momentum", learning_rate=1, momentum=1)
    mv.barrier()
    if mv.worker_id() == mv.num_workers() - 1:
        table.set_option(learning_rate=0.5, momentum=0)
        raises(ValueError, lambda: table.set_option(learning_rate=9, momentum=2), "0 to 1")
    mv.barrier()
    equal(table.options, {"learning_rate": 0.5, "momentum": 0})
    table.add(np.full(40_000, 2))
    mv.barrier()
    equal(table.get(), np.full(40_000, -mv.num_workers()))


@case()
def elastic_averaging_of_workers_taking_turns():
    arrays = [np.full(30_000, 0.0)]
    sync = ParamSync(arrays, updater="easgd", elastic_force=0.25)
    arrays[0] += mv.worker_id() + 1
    center = 0.0
    for who in range(mv.num_workers()):
        center += 0.25 * (who + 1 - center)
        if who == mv.worker_id():
            sync.sync()
            equal(arrays[0], np.full(30_000, who + 1 + 0.25 * (center - (who + 1))))
        mv.barrier()
    equal(sync.tables[0].get(), np.full(30_000, center))


@case(sync=True)
def sync_round_rounds_16_bit_parameters_once():
    sync_round_is_one_update_with_the_sum(stored="float16")


@case(sync=True)
def sync_round_is_one_update_with_the_sum(stored=None):
    workers, me = mv.num_workers(), mv.worker_id()
    rng = np.random.default_rng(SEED)
    for index, shape in enumerate(VARIANT_SHAPES if stored else SHAPES):
        for name, options in updaters_of(shape, None, stored):
            dtype = "float32" if stored else ("float32", "float64")[index % 2]
            start = rng.standard_normal(shape).astype(dtype)
            table = table_of(name, start, stored=stored, **options)
            model = model_of(name, start, stored, **options)
            for turn in range(4):
                deltas = rng.standard_normal((workers, *shape)).astype(start.dtype)
                total = pairwise_sum(deltas)
                model.add(rows_of(total, start), worker=None, terms=workers)
                if turn % 2:
                    same_bits(table.add_get(deltas[me]).reshape(model.values.shape), model.values)
                else:
                    table.add(deltas[me])
            same_bits(table.get().reshape(model.values.shape), model.values)


@case(sync=True)
def sync_round_updates_lazy_rows_with_the_sum_of_their_deltas():
    sync_round_updates_each_row_with_the_sum_of_its_deltas(mv.initializers.RandomUniform(seed=5))


@case(sync=True)
def sync_round_updates_lazy_16_bit_rows_with_the_sum_of_their_deltas():
    sync_round_updates_each_row_with_the_sum_of_its_deltas(
        mv.initializers.TruncatedNormal(seed=5), stored="bfloat16"
    )


@case(sync=True)
def sync_round_updates_each_row_with_the_sum_of_its_deltas(initializer=None, stored=None):
    workers, me = mv.num_workers(), mv.worker_id()
    rng = np.random.default_rng(SEED)  # the same on every rank
    # Of the second matrix, a row takes two messages; of the variants', more than a stripe.
    for rows, columns in ((37, 8), (3, 17_000 if initializer or stored else 70_000)):
        for name, options in updaters_of((rows, columns), initializer, stored):
            start = rng.standard_normal((rows, columns)).astype(np.float32)
            if initializer is not None:
                start = initial_values(initializer, start.shape, start.dtype)
            table = table_of(name, start, initializer, stored, **options)
            model = model_of(name, start, stored, **options)
            for turn in range(5):
                names_row = [rng.random(rows) < 0.4 for _ in range(workers)]
                adds_whole = rng.random(workers) < (0, 0.3, 0.6, 0, 1)[turn]
                deltas = rng.standard_normal((workers, rows, columns)).astype(np.float32)
                for row in range(rows):
                    adders = [w for w in range(workers) if adds_whole[w] or names_row[w][row]]
                    if adders:
                        total = pairwise_sum(
                            [deltas[w][row] if w in adders else None for w in range(len(deltas))]
                        )
                        model.add(total[None], [row], worker=None, terms=len(adders))
                if adds_whole[me]:
                    table.add(deltas[me])
                else:
                    table.add(deltas[me][names_row[me]], np.flatnonzero(names_row[me]))
                same_bits(table.get(), model.values)


@case(sync=True)
def elastic_averaging_in_rounds():
    workers, me = mv.num_workers(), mv.worker_id()
    array = np.zeros(30_000)
    sync = ParamSync([array], updater="easgd", elastic_force=0.125)
    local_values, center = np.zeros(workers), 0.0
    for _ in range(5):
        local_values += np.arange(1, workers + 1)
        array += me + 1
        center += 0.125 * (local_values.sum() - workers * center)
        local_values += 0.125 * (center - local_values)
        sync.sync()
        equal(sync.tables[0].get(), np.full(30_000, center))
        equal(array, np.full(30_000, local_values[me]))


if __name__ == "__main__":
    run_all(CASES)
