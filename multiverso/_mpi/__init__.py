"""All that this package knows of MPI: launchers, communicators, and the mpirun that starts jobs."""
