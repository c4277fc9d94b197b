"""Libraries on top of torch.distributed train on Multiverso's backend as they do on gloo."""

import importlib.metadata
import importlib.util
import re

import pytest
from requirements import needs

import launch
from example_programs import EXAMPLES

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.one_mpi]

RANKS = 2
BACKENDS = ("multiverso", "gloo")

#: The modules that each file of programs/torch_libraries needs, besides PyTorch. What PyTorch has
#: itself for several ranks is in programs/torch_distributed.py.
LIBRARIES = {
    "accelerate": ("accelerate",),
    "lightning": ("lightning",),
    "trainer": ("accelerate", "transformers"),
}

#: The libraries that `make test-all` leaves out, because Accelerate trains in the same way.
OF_RELEASES = ("lightning", "trainer")

#: The rounding errors of float32 in six steps.
NOISE = 1e-5


@pytest.fixture
def torchrun(tmp_path):
    """Return a program that starts ranks with torchrun, and has the command line of an mpirun."""
    return launch.torchrun_command(tmp_path)


def trained(library, torchrun):
    """Train with a library on both backends; return the reports of the ranks, in order, of each."""
    environ = {**launch.ONE_THREAD, "HF_HUB_OFFLINE": "1"}
    result = launch.run(
        "torch_training.py", library, *BACKENDS, np=RANKS, mpirun=torchrun, **environ
    ).check()
    found = [[result.reports[rank][backend] for rank in range(RANKS)] for backend in BACKENDS]
    for backend, reports in zip(BACKENDS, found, strict=True):
        assert [report["backend"] for report in reports] == [backend] * RANKS
    return found


@pytest.mark.parametrize(
    "library",
    [pytest.param(name, marks=[pytest.mark.release] * (name in OF_RELEASES)) for name in LIBRARIES],
)
def test_library_trains_as_on_gloo(library, torchrun):
    missing = [
        name for name in ("torch", *LIBRARIES[library]) if importlib.util.find_spec(name) is None
    ]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    ours, expected = trained(library, torchrun)
    assert len({report["digest"] for report in ours}) == 1, "the parameters differ between ranks"
    for report, reference in zip(ours, expected, strict=True):
        assert len(report["losses"]) >= 6
        for name in ("losses", "norms"):
            assert report[name] == pytest.approx(reference[name], rel=NOISE)


@needs("torch")
@pytest.mark.parametrize("backend", BACKENDS)
def test_example_finds_the_backend_of_the_installed_package(backend, torchrun):
    if not importlib.metadata.entry_points(group="torch.backends", name="multiverso"):
        pytest.skip("needs an installed Multiverso that PyTorch finds")
    program = EXAMPLES / "torch" / "ddp_backend.py"
    result = launch.run(program, "--backend", backend, np=RANKS, mpirun=torchrun).check()
    found = re.search(rf"{backend}: test error (\d+\.\d+)%", result.output)
    assert found is not None, result.output
    assert float(found[1]) < 10
