"""Tables: parameters that every worker can add to and get from.

`ArrayTable`, `MatrixTable` and `HashTable` are the tables of a session. A `View` shows the tables
of a running session to another process.
"""

from multiverso.tables._array_table import ArrayTable
from multiverso.tables._background import Future
from multiverso.tables._hash_table import HashTable
from multiverso.tables._ids import hash_keys
from multiverso.tables._live_table import LiveTable
from multiverso.tables._matrix_table import MatrixTable
from multiverso.tables._options import TableOptions, UpdaterName, UpdaterOptions
from multiverso.tables._table import Table
from multiverso.tables._view import Cut, View, attach

__all__ = [
    "ArrayTable",
    "ArrayTableHandler",
    "Cut",
    "Future",
    "HashTable",
    "HashTableHandler",
    "LiveTable",
    "MatrixTable",
    "MatrixTableHandler",
    "Table",
    "TableOptions",
    "UpdaterName",
    "UpdaterOptions",
    "View",
    "attach",
    "hash_keys",
]

# The names that Multiverso 2016 had for its tables.
ArrayTableHandler = ArrayTable
MatrixTableHandler = MatrixTable
HashTableHandler = HashTable
