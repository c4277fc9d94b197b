"""Checkpoints: finding, checking and reading them, without a session, and other tools' files.

`multiverso.save` and `multiverso.load` are what a training program needs. The format is described
byte by byte in docs/checkpoint-format.md; nothing in a file is ever executed, and nothing in it is
believed before it has been checked.
"""

from multiverso.checkpoint._files import Checkpoint, SavedTable, latest, saved_in, verify
from multiverso.checkpoint._safetensors import export_safetensors, import_safetensors

__all__ = [
    "Checkpoint",
    "SavedTable",
    "export_safetensors",
    "import_safetensors",
    "latest",
    "saved_in",
    "verify",
]
