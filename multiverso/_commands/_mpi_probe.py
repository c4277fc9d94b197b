"""The program with which `_system_info` examines the MPI of mpi4py, without initializing MPI.

It prints a line of JSON: vendor, version, standard and library, or ``error`` and ``is_missing``.
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
        found = {"error": f"mpi4py finds no MPI: {error}", "is_missing": True}
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    from multiverso._mpi.communicator import library_of

    vendor, version = MPI.get_vendor()
    facts = {
        "vendor": vendor,
        "version": ".".join(map(str, version)),
        "standard": ".".join(map(str, MPI.Get_version())),
        "library": library_of(MPI),
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
