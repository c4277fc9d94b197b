"""The programs and scripts with which docs/ start a job again after a loss."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"

#: Before the program of the page: in the first attempt, the last rank dies in its 25th step.
DIES_ONCE = """
import os
import signal

import multiverso as mv

check_leaving = mv.check_leaving

def check_leaving_or_die(step):
    if step == 25 and mv.rank() == mv.size() - 1 and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    check_leaving(step)

mv.check_leaving = check_leaving_or_die
"""


def block_with(page, text):
    """Return the code block of a page that contains a text."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.M | re.S)
    (block,) = [block for block in blocks if text in block]
    return block


def write_program(folder):
    """Write ``train.py``, the program of docs/cluster.md, which dies once if ``died`` is absent."""
    program = DIES_ONCE + block_with("cluster.md", 'checkpoints="saved"')
    (folder / "train.py").write_text(program, "utf-8")
