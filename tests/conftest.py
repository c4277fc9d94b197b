"""Settings of every test run."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

if (Path(sys.executable).parent / "ompi_info").exists():
    import launch

    # Tests also start jobs through programs of the project, which inherit these settings.
    os.environ.update({**launch.OPEN_MPI, **os.environ})

if importlib.util.find_spec("theano"):
    # Theano 1.0.5 searches for a BLAS with distutils, which Python no longer has.
    os.environ.setdefault("THEANO_FLAGS", "blas.ldflags=,floatX=float32")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow files first, so that no process runs one alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
