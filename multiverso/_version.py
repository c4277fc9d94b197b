"""The version of Multiverso, in its one place; the build reads this file as text."""

__version__ = "0.3.0"
