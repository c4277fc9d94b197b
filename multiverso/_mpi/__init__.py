"""Everything about MPI: launchers, communicators, and the command line of mpirun."""
