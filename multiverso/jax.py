"""`multiverso.jax_ext` by a shorter name."""

from multiverso.jax_ext import *  # noqa: F403
from multiverso.jax_ext import __all__ as __all__
