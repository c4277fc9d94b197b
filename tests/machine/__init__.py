"""One model of tables and random programs of calls that tables must agree with, bit by bit.

`model` says in NumPy what a table contains, `tables` draws one, `operations` has the calls, and
`programs` runs them under a configuration (`tests/configurations.py`).
"""
