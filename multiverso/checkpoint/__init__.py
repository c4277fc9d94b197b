"""Finds, verifies, reads and converts checkpoints, without a session.

A training program needs only `multiverso.save` and `multiverso.load`. docs/checkpoint-format.md
describes the format byte by byte. Reading a checkpoint never executes anything in it, and never
relies on a value that has not been verified.
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
