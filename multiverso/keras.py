"""`multiverso.keras_ext` by a shorter name."""

from multiverso.keras_ext import *  # noqa: F403
from multiverso.keras_ext import __all__ as __all__
