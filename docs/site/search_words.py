"""Words for which people search, and which the page with the answer does not use, or not first.

They are names of other libraries for the same thing, and terms of readers who do not know ours.
"""

#: The words of each page. A search for one of them finds the page before pages that mention it.
SEARCH_WORDS = {
    "adapters.md": (
        "average parameters",
        "DistributedSampler",
        "early stopping",
        "EarlyStopping",
        "Horovod",
        "model averaging",
        "parameter averaging",
    ),
    "checkpoints.md": ("ModelCheckpoint", "save a model", "snapshot"),
    "consistency.md": ("allreduce", "all_reduce", "BSP", "Hogwild", "SSP"),
    "embeddings.md": ("FBGEMM", "hash_keys", "recommender", "TorchRec"),
    "errors.md": ("error codes", "exceptions"),
    "faq.md": ("how do I resume", "how do I use a GPU", "use my GPUs"),
    "faults.md": ("deadlock", "fault tolerance", "hang", "stuck"),
    "installation.md": ("Jupyter", "notebook"),
    "learn.md": ("HDF5",),
    "live.md": ("attach", "inference"),
    "python-code.md": ("Lasagne", "Theano"),
    "serving.md": ("deployment", "inference", "rollback", "serve a model", "two towers"),
    "shared-arrays.md": ("k-means", "kmeans", "shared memory"),
    "supported.md": ("combinations", "compatibility matrix", "not supported"),
    "tables-on-disk.md": ("backing", "mmap", "out of core", "SSD", "warm restart"),
    "torch-distributed.md": ("broadcast", "DDP", "DistributedDataParallel", "torch.distributed"),
}
