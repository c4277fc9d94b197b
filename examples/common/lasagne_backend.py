"""Lasagne and Theano, configured for a job of several processes.

    from lasagne_backend import T, lasagne, theano

Your settings in THEANO_FLAGS take precedence. Theano compiles its functions, which takes minutes
the first time. Without a compiler (``THEANO_FLAGS=mode=FAST_COMPILE,linker=py,cxx=``) it starts
immediately but runs much more slowly.
"""

import logging
import os
import warnings
from pathlib import Path

# Each process has its own folder for compiled code: in a shared one, the processes would wait for
# each other, and a killed process would leave its lock behind.
RANK = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or "0"
CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
FLAGS = f"floatX=float32,blas.ldflags=,base_compiledir={CACHE_FOLDER / 'theano' / f'rank-{RANK}'}"

os.environ["THEANO_FLAGS"] = ",".join(filter(None, [FLAGS, os.environ.get("THEANO_FLAGS", "")]))
# Hides the warning about the missing BLAS.
logging.getLogger("theano.tensor.blas").setLevel(logging.ERROR)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from multiverso.lasagne_ext import old_names

    # MULTIVERSO: restores names that Lasagne 0.1 needs and that newer dependencies removed.
    old_names.supply()
    import lasagne
    import theano
    import theano.tensor as T  # noqa: N812 (the conventional name)

# Lasagne calls Theano with a keyword that is now deprecated.
warnings.filterwarnings("ignore", message="The `image_shape` keyword")

__all__ = ["T", "lasagne", "theano"]
