"""A gloo group of PyTorch, which has the ranks of a benchmark and needs no port."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ranks import Ranks


@contextlib.contextmanager
def gloo(ranks: Ranks) -> Iterator[tuple[Any, str | None]]:
    """Yield torch with a gloo group of all ranks, or None and the reason."""
    try:
        import torch
        from torch import distributed
    except ImportError:
        problem = "no gloo: torch is not installed"
        torch = None
    else:
        problem = None if distributed.is_gloo_available() else "no gloo: torch was built without it"
    problems = [other for other in ranks.gather(problem) if other is not None]
    if problems or ranks.size == 1:
        yield None, problems[0] if problems else None
        return
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        folder = None
        if ranks.is_master:
            # Ranks that leave their groups later than this one still write to the store.
            temporary = tempfile.TemporaryDirectory(
                prefix="multiverso-gloo-", ignore_cleanup_errors=True
            )
            folder = stack.enter_context(temporary)
        store = distributed.FileStore(os.path.join(ranks.gather(folder)[0], "store"), ranks.size)
        distributed.init_process_group("gloo", store=store, rank=ranks.rank, world_size=ranks.size)
        try:
            yield torch, None
            ranks.barrier()  # until then other ranks may still use the group
        finally:
            distributed.destroy_process_group()
