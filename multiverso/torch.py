"""`multiverso.torch_ext` by a shorter name."""

from multiverso.torch_ext import *  # noqa: F403
from multiverso.torch_ext import __all__ as __all__
