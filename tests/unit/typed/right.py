"""A program that uses the types of the package, and in which a type checker finds no error."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import multiverso as mv
from multiverso.sync import ParamSync
from multiverso.tables import Future, View


def step(table: mv.ArrayTable, gradient: NDArray[np.float32]) -> float:
    table.add(-0.1 * gradient)
    values = table.get()
    table.get(out=gradient).fill(0)
    tail = table.get(index=np.s_[-2:])
    return float(values.sum() + tail.mean())


def rows(table: mv.MatrixTable, row_ids: Sequence[int]) -> NDArray[np.float64]:
    ahead: Future[NDArray[np.float64]] = table.get_async(row_ids, fresh=True)
    pushed = table.add_async(np.ones((len(row_ids), table.num_col)), row_ids)
    pushed.result()
    result: NDArray[np.float64] = ahead.result(timeout=5.0)
    table.add(np.zeros((2, 2)), index=np.s_[:2, :2])
    changed = result + table.add_get(np.zeros(table.shape))[0]
    return np.asarray(changed, np.float64)


def keys(table: mv.HashTable, names: Sequence[str]) -> int:
    ids = mv.hash_keys(names)
    table.get(ids, insert=False)
    for found, values in table.items():
        print(found[0], values.shape)
    return len(table) + int(table.contains(ids).sum())


def count(counter: mv.ArrayTable) -> int:
    before = counter.fetch_add(0)
    return int(counter.compare_swap(0, before + 1, 0))


def read(view: View) -> int:
    values = view.cut(["weights"])["weights"]
    other = view.tables["weights"]
    return len(values) + other.get([1]).size


def train(rate: float) -> float:
    with mv.session(sync=True) as session:
        table = mv.ArrayTable(4, updater="momentum", learning_rate=rate, momentum=0.9)
        matrix = mv.MatrixTable(4, 4, 0.5, dtype="float64", wire="bfloat16", name="rows")
        weights = [np.zeros(3), np.zeros((2, 2))]
        sync = ParamSync(weights, updater="adam", learning_rate=1e-3)
        for batch in mv.Work(range(10)):
            print(batch, step(table, np.ones(4, np.float32)))
            sync.sync()
        total: NDArray[np.float64] = mv.aggregate(np.ones(3))
        print(rows(matrix, [0, 1]), total / mv.num_workers(), session.lost_ranks())
    return rate


def main() -> None:
    results: list[float] = mv.spawn(train, 2, (0.1,))
    print(sum(results), mv.checkpoint.latest("saved"))
    try:
        mv.barrier()
    except (mv.PeerLostError, mv.errors.StateError) as error:
        print(error)
