"""The notebook about consistency runs, and the ages that it measures keep their bounds."""

import ast

import pytest
from requirements import needs

from example_programs import EXAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.one_mpi]


@needs("cloudpickle", "ipykernel", "matplotlib", "nbclient")
def test_ages_of_parameters_keep_the_bounds_of_their_modes():
    import nbclient
    import nbformat

    notebook = nbformat.read(EXAMPLES / "notebooks" / "consistency.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear all outputs"
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    found = ast.literal_eval(outputs[-1]["data"]["text/plain"])
    assert set(found) == {"async", "staleness 4", "staleness 1", "sync", "EASGD", "DiLoCo"}
    oldest = {way: result["oldest"] for way, result in found.items()}
    assert oldest["sync"] == 0
    assert oldest["staleness 1"] <= 1
    assert oldest["staleness 4"] <= 4
    for way, result in found.items():
        assert result["loss"] < 200, way  # It is about 390 at the start.
