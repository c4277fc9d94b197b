"""The batch scripts of docs/slurm.md, under a scheduler that this test plays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import recipes

import launch
import multiverso
from multiverso import checkpoint
from multiverso._local.processes import descendants

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]

#: It ignores its options, like Slurm those that it knows, and runs the program in its own process.
SRUN = """
import os, sys
program = next(i for i, word in enumerate(sys.argv) if i > 0 and not word.startswith("-"))
with open("step", "w") as file:
    file.write(str(os.getpid()))
os.execvp(sys.argv[program], sys.argv[program:])
"""

SCONTROL = """
import os, sys
with open("requeued", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
"""

TRAIN = """
import os, sys
import multiverso as mv

mv.init(on_term="leave", checkpoints="saved")
table = mv.ArrayTable(1, dtype="int64", name="adds")
mv.load("saved", missing_ok=True)
mv.barrier()
open("ready", "w").close()
while not os.path.exists("enough"):
    table.add([1])
    mv.check_leaving()
mv.barrier()
if mv.is_master_worker():
    print("adds", table.get()[0])
mv.shutdown()
"""


class Scheduler:
    """Runs the batch job of the page that contains a text, in a folder, as Slurm does."""

    def __init__(self, folder, text):
        self.folder = folder
        script = recipes.block_with("slurm.md", text)
        assert "#SBATCH --signal=TERM@60\n#SBATCH --requeue\n" in script
        (folder / "job.sh").write_text(script, "utf-8")
        tools = folder / "bin"
        tools.mkdir()
        for name, program in (("srun", SRUN), ("scontrol", SCONTROL), ("multiverso", None)):
            text = program or "import sys\nfrom multiverso.__main__ import main\nsys.exit(main())"
            (tools / name).write_text(f"#!{sys.executable}\n{text}", "utf-8")
            (tools / name).chmod(0o755)
        self.environ = {
            **launch.environment(),
            "PATH": os.pathsep.join((str(tools), os.environ["PATH"])),
            "PYTHONPATH": str(Path(multiverso.__file__).parents[1]),
            "SLURM_JOB_ID": "4711",
            "SLURM_CPUS_ON_NODE": "2",
        }

    def start(self, **environ):
        (self.folder / "ready").unlink(missing_ok=True)
        return subprocess.Popen(
            ["sh", "job.sh"],
            cwd=self.folder,
            env={**self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def processes(self):
        """Return all processes of the step, once its ranks train."""
        deadline = time.monotonic() + launch.JOB_TIMEOUT
        while not (self.folder / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return descendants(int((self.folder / "step").read_text("utf-8")))


def test_job_is_saved_requeued_and_resumed(tmp_path):
    slurm = Scheduler(tmp_path, "multiverso run --grace 50")
    (tmp_path / "train.py").write_text(TRAIN, "utf-8")
    saved = []
    for _ in range(2):
        job = slurm.start()
        for process in slurm.processes():
            os.kill(process, signal.SIGTERM)
        output = job.communicate(timeout=launch.JOB_TIMEOUT)[0]
        assert job.returncode == 143, output
        with checkpoint.Checkpoint(checkpoint.latest(tmp_path / "saved")) as found:
            saved.append(int(found.read("adds")[0]))
    assert (tmp_path / "requeued").read_text("utf-8") == 2 * "requeue 4711\n"
    assert 0 <= saved[0] <= saved[1]
    (tmp_path / "enough").touch()
    job = slurm.start()
    output = job.communicate(timeout=launch.JOB_TIMEOUT)[0]
    assert job.returncode == 0, output
    assert f"adds {saved[1]}" in output
    assert (tmp_path / "requeued").read_text("utf-8") == 2 * "requeue 4711\n"


def test_job_is_requeued_after_a_loss_unless_it_was_often(tmp_path):
    slurm = Scheduler(tmp_path, "SLURM_RESTART_COUNT")
    recipes.write_program(tmp_path)
    requeued = tmp_path / "requeued"
    for restarts, calls in ("5", 0), ("4", 1):
        (tmp_path / "died").unlink(missing_ok=True)
        job = slurm.start(SLURM_RESTART_COUNT=restarts)
        output = job.communicate(timeout=launch.JOB_TIMEOUT)[0]
        assert job.returncode == 128 + signal.SIGKILL, output
        assert requeued.exists() == bool(calls)
    assert requeued.read_text("utf-8") == "requeue 4711\n"
    job = slurm.start(SLURM_RESTART_COUNT="5")
    output = job.communicate(timeout=launch.JOB_TIMEOUT)[0]
    assert job.returncode == 0, output
    assert "from step 20 to [100. 200. 300.]" in output
    assert requeued.read_text("utf-8") == "requeue 4711\n"
