"""Lasagne and Theano, set up for a job of several processes.

    from lasagne_backend import T, lasagne, theano

Settings in THEANO_FLAGS win over those made here. Theano compiles what it runs, which takes minutes
the first time. Without a compiler (``THEANO_FLAGS=mode=FAST_COMPILE,linker=py,cxx=``) it starts at
once and runs much more slowly.
"""

import logging
import os
import warnings
from pathlib import Path

# Each process keeps what it compiles in a folder of its own: in a common one they would wait for
# each other, and a process that is killed would leave a lock behind for the others.
RANK = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or "0"
HOME = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
FLAGS = f"floatX=float32,blas.ldflags=,base_compiledir={HOME / 'theano' / f'rank-{RANK}'}"

os.environ["THEANO_FLAGS"] = ",".join(filter(None, [FLAGS, os.environ.get("THEANO_FLAGS", "")]))
# It warns that no BLAS was found.
logging.getLogger("theano.tensor.blas").setLevel(logging.ERROR)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from multiverso.lasagne_ext import old_names

    # MULTIVERSO: names that Lasagne 0.1 looks for and younger releases of others do not have.
    old_names.supply()
    import lasagne
    import theano
    import theano.tensor as T  # noqa: N812 (the name that all programs give it)

# Of Lasagne, which calls Theano's functions as was right in its time.
warnings.filterwarnings("ignore", message="The `image_shape` keyword")

__all__ = ["T", "lasagne", "theano"]
