"""The example of actors, whose learner starts them itself."""

import importlib.util
import json

import pytest
from programs import run_python
from requirements import needs, needs_found_sessions

from example_programs import EXAMPLES

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.release, needs_found_sessions]


@needs("torch")
def test_an_actor_reads_newer_weights_while_the_learner_trains(tmp_path):
    results = tmp_path / "results.json"
    program, options = EXAMPLES / "torch" / "actors.py", ("--actors", "1", "--updates", "40")
    status, printed, errors = run_python(program, *options, "--json", results, timeout=150)
    assert status == 0, errors
    found = json.loads(results.read_text("utf-8"))
    assert found.pop("actors") == 1
    has_ray = importlib.util.find_spec("ray") is not None
    assert set(found) == {"table", "queues", *["ray"][: int(has_ray)]}
    for way, result in found.items():
        assert f"{way} " in printed
        # Without new weights, their age would be 19.5 steps on average.
        assert 0 <= result["age_in_steps"] < 15
        assert 0 < result["reward"] <= 1
