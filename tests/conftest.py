"""Settings of every test run."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

if (Path(sys.executable).parent / "ompi_info").exists():
    import launch

    # Programs that the tests start inherit these settings when they start jobs.
    os.environ.update(launch.environment())

if importlib.util.find_spec("theano"):
    # Theano 1.0.5 searches for a BLAS with distutils, which Python no longer has.
    os.environ.setdefault("THEANO_FLAGS", "blas.ldflags=,floatX=float32")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow files first, so that no process runs one alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
