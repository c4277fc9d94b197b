"""Jobs on one machine without MPI."""
