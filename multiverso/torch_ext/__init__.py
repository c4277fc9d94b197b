"""Multiverso for programs written with PyTorch.

    from multiverso.torch_ext import DistributedOptimizer

    with mv.session():
        model = torch.nn.Linear(64, 10)
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for x, y in batches:  # this worker's part of them
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()  # trains, and syncs

`TorchParamManager` does the same without an optimizer. `load_live` fills a module in another
process, such as an evaluator, while the workers train it; see docs/live.md. `Embedding` and
`EmbeddingBag` are layers whose rows are in a table, which may be larger than a worker's memory; see
docs/embeddings.md.
"""

from multiverso._extras import needs

with needs("multiverso.torch_ext", torch="torch"):
    from multiverso.torch_ext.embedding import (
        Embedding,
        EmbeddingBag,
        EmbeddingBagCollection,
        prefetch,
    )
    from multiverso.torch_ext.live import load_live
    from multiverso.torch_ext.optimizer import DistributedOptimizer
    from multiverso.torch_ext.param_manager import TorchParamManager

__all__ = [
    "DistributedOptimizer",
    "Embedding",
    "EmbeddingBag",
    "EmbeddingBagCollection",
    "TorchParamManager",
    "load_live",
    "prefetch",
]
