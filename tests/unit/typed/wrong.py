"""A program with a mistake in each line that ends with "wrong", which a type checker finds."""

import numpy as np

import multiverso as mv

table = mv.ArrayTable("4")  # wrong
adam = mv.ArrayTable(4, updater="adma")  # wrong
rated = mv.ArrayTable(4, updater="sgd", learning_rte=0.1)  # wrong
slow = mv.MatrixTable(4, 4, wire="int4")  # wrong
values: str = slow.get([0])  # wrong
slow.get(out="values")  # wrong
slow.add(np.ones((4, 4)), rows=[1])  # wrong
number: list[int] = adam.fetch_add(0)  # wrong
done: int = adam.add_async(np.ones(4)).result()  # wrong
mv.no_such_function()  # wrong
