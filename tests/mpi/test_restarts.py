"""A job on several nodes that starts again after a loss, by the loop of docs/cluster.md."""

import os
from pathlib import Path

import pytest
import recipes

import launch

pytestmark = pytest.mark.slow

#: The launcher of the harness, which runs the loop instead of its arguments.
RUNS_THE_LOOP = "#!/bin/sh\nexec sh loop.sh\n"


def run_loop(folder):
    """Run the loop of the page on two virtual nodes; return the output."""
    (folder / "loop.sh").write_text(recipes.block_with("cluster.md", "until mpirun"), "utf-8")
    launcher = folder / "launcher"
    launcher.write_text(RUNS_THE_LOOP, "utf-8")
    launcher.chmod(0o755)
    variables = {
        "MULTIVERSO_RANKS_PER_NODE": "2",
        "PATH": os.pathsep.join((str(Path(launch.find_mpirun()).parent), os.environ["PATH"])),
    }
    with launch.Job("", np=4, mpirun=launcher, cwd=folder, **variables) as job:
        return job.finish().check().output


def test_loop_around_mpirun_continues_from_the_checkpoint_to_the_same_result(tmp_path):
    recipes.write_program(tmp_path)
    output = run_loop(tmp_path)
    assert output.count("attempts remain") == 1, output
    assert "4 attempts remain" in output
    assert output.count("from step 20 to [ 400.  800. 1200.]") == 4, output
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    recipes.write_program(undisturbed)
    (undisturbed / "died").touch()
    output = run_loop(undisturbed)
    assert "attempts remain" not in output
    assert output.count("from step 0 to [ 400.  800. 1200.]") == 4, output
