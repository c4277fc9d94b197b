"""The order of the tests: files run beside each other, and none is to be left alone at the end."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the files that take long begin first; the others keep their order."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
