"""The semantics of asynchronous tables on any number of ranks: the cases of six modules."""

import adding  # noqa: F401 (importing a module registers its cases)
import changes  # noqa: F401
import creation  # noqa: F401
import parts  # noqa: F401
import reading  # noqa: F401
import working  # noqa: F401
from cases import CASES, SEED, run_all

__all__ = ["CASES", "SEED"]

if __name__ == "__main__":
    run_all()
