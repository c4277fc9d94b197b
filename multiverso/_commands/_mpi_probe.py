"""The program with which `_system_info` examines the MPI of mpi4py, without initializing MPI.

It prints a line of JSON: vendor, version, standard and library, or ``error``.
"""

import json
import sys


def main() -> int:
    """Print the line; return 0, also with an error."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        sys.stdout.write(json.dumps({"error": f"mpi4py finds no MPI: {error}"}) + "\n")
        return 0
    from multiverso._mpi.communicator import library_of

    vendor, version = MPI.get_vendor()
    found = {
        "vendor": vendor,
        "version": ".".join(map(str, version)),
        "standard": ".".join(map(str, MPI.Get_version())),
        "library": library_of(MPI),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
