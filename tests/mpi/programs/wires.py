"""Cases about tables whose values travel between nodes as bfloat16 or int8."""

import numpy as np
from cases import SEED, equal, open_session, registrar, run_all

import multiverso as mv
from multiverso.sync import ParamSync
from multiverso.tables._array_table import ExchangeTable

CASES = {}

case = registrar(CASES)

WIRES = ("float32", "bfloat16", "int8")


def random_delta(rng, shape):
    """Return a delta of many magnitudes, with zeros."""
    delta = rng.normal(size=shape) * np.exp(rng.normal(size=shape))
    return np.where(rng.random(shape) < 0.2, 0, delta).astype(np.float32)


def total_of(values):
    """Return the sum of float64 values over the workers."""
    return mv.aggregate(np.array(values, np.float64))


def close(actual, expected, most):
    """Check that no element differs by more than `most`."""
    assert np.abs(actual - expected).max() <= most, (np.abs(actual - expected).max(), most)


@case()
def tables_of_single_elements_are_not_encoded():
    for size in range(1, 6):
        table = ExchangeTable(size, wire="int8")
        array = np.zeros(size, np.float32)
        sync = ParamSync([array], wire="int8")
        delta = np.full(size, 0.3, np.float32)  # equal magnitudes are exact but for one rounding
        table.add(delta)
        array += delta
        sync.sync()
        for each in (table, sync.tables[0]):
            close(each.get(sync=True), 0.3 * mv.num_workers(), 1e-5)
        mv.barrier()


@case()
def errors_of_adds_cancel_out():
    table = ExchangeTable(20_000, wire="int8")
    delta = random_delta(np.random.default_rng(SEED), 20_000)
    count = 100
    for _ in range(count // 2):
        table.add(delta)
        table.add_get(delta)
    values = table.get(sync=True)
    close(table.add_get(np.zeros(20_000)), values, np.abs(values).max() / 256)
    error = values / (count * mv.num_workers()) - delta
    step = np.abs(delta).max() / 127
    # The standard deviation of one element's mean is at most step / 2 / sqrt(count).
    assert np.abs(error).max() <= 3 * step / np.sqrt(count)
    assert abs(error.mean()) <= 3 * step / np.sqrt(count * 20_000)
    mv.barrier()


@case()
def values_that_an_encoding_lacks_travel_unchanged():
    special = [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38]
    values = np.zeros(300_000, np.float32)
    values[::60_000] = special
    for wire in WIRES:
        table = ExchangeTable(300_000, wire=wire)
        if mv.worker_id() == 0:
            equal(table.add_get(values), values)
        mv.barrier()
        equal(table.get(), values)
        mv.barrier()


@case()
def received_and_held_back_is_what_was_learned():
    for wire in WIRES:
        for updater, options in (("add", {}), ("sgd", {"learning_rate": 1.0})):
            rng = np.random.default_rng(SEED)
            array = np.zeros(200_000, np.float32)
            sync = ParamSync([array], wire=wire, updater=updater, **options)
            learned = np.zeros(200_000)
            for _ in range(5):
                if mv.worker_id() == 0:
                    progress = random_delta(rng, 200_000)
                    array += progress
                    learned += progress
                    sync.sync()
            values = sync.tables[0].get(sync=True)
            if mv.worker_id() == 0:
                # The worker received the values, rounded unless they are on its own node.
                halves = (
                    values.view(np.uint32) + 0x7FFF + (values.view(np.uint32) >> 16 & 1)
                ) >> 16
                rounded = (halves << 16).astype(np.uint32).view(np.float32)
                errors = [values + (array - got) - learned for got in (values, rounded)]
                assert np.abs(errors).min(axis=0).max() <= 2e-4
                # Syncs without training send what was held back.
                for _ in range(4):
                    sync.sync()
            close(sync.tables[0].get(sync=True), total_of(learned), 2e-4)
            mv.barrier()


def check_meeting(*, average):
    """Check that nothing is lost when all have sent what they had held back."""
    rng = np.random.default_rng((SEED, mv.rank()))
    array, doubles = np.zeros((300, 700), np.float32), np.zeros(5)
    sync = ParamSync([array, doubles], wire="int8", average=average)
    learned = np.zeros(array.shape)
    for _ in range(10):
        progress = random_delta(rng, array.shape)
        array += progress
        learned += progress
        sync.sync()
    for _ in range(4):
        sync.sync()
        if average:
            mv.barrier()
    total = total_of(learned) / (mv.num_workers() if average else 1)
    close(sync.tables[0].get(sync=True).reshape(array.shape), total, 1e-3)
    if average:
        close(array, total, np.abs(total).max() / 200)
    mv.barrier()


@case()
def workers_meet_after_their_last_deltas():
    check_meeting(average=True)


@case(staleness=2)
def bounded_staleness_loses_nothing():
    check_meeting(average=False)


@case()
def counts_show_what_encoding_saves():
    for wire, least in zip(WIRES, (1.0, 1.99, 3.9), strict=True):
        table = ExchangeTable(1_000_000, name=f"counted {wire}", wire=wire)
        table.add(np.ones(1_000_000, np.float32))
        counts = mv.stats()[f"counted {wire}"]
        ratio = counts["raw_bytes_sent"] / max(counts["bytes_sent"], 1)
        if counts["bytes_sent"] > 0:
            assert least <= ratio <= least * 1.05, ratio
            assert (counts["seconds_encoding"] > 0) == (wire != "float32")
        mv.barrier()


def history(wire):
    """Return the bytes of all values that this worker reads in rounds with random deltas."""
    rng = np.random.default_rng((SEED, mv.worker_id()))
    array = mv.ArrayTableHandler(150_000, wire=wire)
    matrix = mv.MatrixTableHandler(4000, 10, updater="adagrad", wire=wire)
    lazy = mv.MatrixTableHandler(4000, 10, init_value=mv.initializers.Zeros(), wire=wire)
    parameters = np.zeros(30_000, np.float32)
    sync = ParamSync([parameters], wire=wire)
    read = []
    for step in range(8):
        array.add(random_delta(rng, 150_000))
        if step % 3 == 2:
            array.get()  # Some rounds have no get.
        for table in (matrix, lazy):
            ids = np.unique(rng.integers(0, 4000, 200 * (1 + mv.worker_id() % 2)))
            table.add(random_delta(rng, (len(ids), 10)), ids)
            read.append(table.get(ids[:5]).tobytes() if step % 2 else table.get().tobytes())
        parameters += random_delta(rng, 30_000)
        sync.sync()
        read.append(parameters.tobytes())
    return [*read, array.get().tobytes()]


@case(sync=True)
def rounds_read_the_same_on_all_workers_and_in_all_runs():
    for wire in WIRES:
        first = history(wire)
        # What is random depends on the number of a table in its session.
        mv.shutdown()
        open_session(sync=True)
        equal(history(wire) == first, True)
        # Whole gets, of every second step, and syncs are the same on all workers.
        common = b"".join(bytes_ for bytes_ in first if len(bytes_) > 4000 * 10)
        numbers = np.frombuffer(common, np.uint32).astype(np.float64)
        equal(mv.aggregate(numbers.copy()), numbers * mv.num_workers())
        mv.shutdown()
        open_session(sync=True)


@case(sync=True)
def only_float32_values_have_a_wire_format():
    equal(mv.ArrayTableHandler(5, dtype="float64", wire="float32").get(), np.zeros(5))
    table = mv.ArrayTableHandler(5, dtype="bfloat16", wire="int8")
    table.add([1, 2, 3, 4, 127])
    close(table.get(), np.array([1, 2, 3, 4, 127]) * mv.num_workers(), mv.num_workers())


if __name__ == "__main__":
    run_all(CASES)
