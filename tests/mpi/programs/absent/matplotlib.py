"""Makes ranks start faster: Keras imports this package, for functions that no test uses."""

raise ImportError("tests/mpi/programs/absent hides this package")
