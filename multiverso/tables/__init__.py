"""Tables: parameters that every worker can add to and get from.

`ArrayTable`, `MatrixTable` and `HashTable` are the tables of a session. A `View` shows the tables
of a job to another process.
"""

from multiverso._native.ids import hash_keys
from multiverso.readers import Cut, View, ViewTable, attach
from multiverso.tables._array_table import ArrayTable
from multiverso.tables._background import Future
from multiverso.tables._hash_table import HashTable
from multiverso.tables._matrix_table import MatrixTable
from multiverso.tables._options import TableOptions, UpdaterName, UpdaterOptions
from multiverso.tables._table import Table

__all__ = [
    "ArrayTable",
    "ArrayTableHandler",
    "Cut",
    "Future",
    "HashTable",
    "HashTableHandler",
    "MatrixTable",
    "MatrixTableHandler",
    "Table",
    "TableOptions",
    "UpdaterName",
    "UpdaterOptions",
    "View",
    "ViewTable",
    "attach",
    "hash_keys",
]

# The names that Multiverso 2016 had for its tables.
ArrayTableHandler = ArrayTable
MatrixTableHandler = MatrixTable
HashTableHandler = HashTable
# The former name of the tables of a view.
LiveTable = ViewTable
