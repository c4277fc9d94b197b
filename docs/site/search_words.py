"""Words for which people search, and which the page with the answer does not use, or not first.

They are names of other libraries for the same thing, and terms of readers who do not know ours.
None begins with a word of many questions, such as "a", "do" or "I": the theme also finds words that
begin with a word of the question.
"""

#: The words of each page. A search for one of them finds the page before pages that mention it.
SEARCH_WORDS = {
    "adapters.md": (
        "DistributedSampler",
        "early stopping",
        "EarlyStopping",
        "Horovod",
        "model averaging",
    ),
    "checkpoints.md": ("checkpoint", "load a model", "ModelCheckpoint", "save a model", "snapshot"),
    "coming-from.md": ("Horovod", "RPC"),
    "consistency.md": ("allreduce", "all_reduce", "BSP", "Hogwild", "SSP"),
    "elastic.md": ("elastic", "killed worker"),
    "embeddings.md": ("FBGEMM", "hash_keys", "recommender", "TorchRec"),
    "errors.md": ("error codes", "exceptions"),
    "faq.md": ("how do I resume", "how do I use a GPU", "use my GPUs"),
    "faults.md": ("Ctrl-C", "deadlock", "fault tolerance", "hang", "log", "stuck", "timeout"),
    "first-ten-minutes.md": ("getting started", "quick start", "quickstart"),
    "installation.md": ("Jupyter", "notebook"),
    "learn.md": ("HDF5",),
    "live.md": ("attach", "follow", "inference", "publish"),
    "numpy.md": (
        "FedAvg",
        "federated",
        "grid search",
        "hyperparameter search",
        "Optuna",
        "scikit-learn",
        "sklearn",
        "word count",
    ),
    "python-code.md": ("Lasagne", "Theano"),
    "serving.md": ("deployment", "inference", "rollback", "serve a model", "two towers"),
    "shared-arrays.md": ("k-means", "kmeans", "shared memory"),
    "supported.md": ("combinations", "compatibility matrix", "not supported"),
    "tables-on-disk.md": ("backing", "mmap", "out of core", "SSD", "warm restart"),
    "torch-distributed.md": ("broadcast", "DDP", "DistributedDataParallel", "torch.distributed"),
    "tutorial.md": ("tutorial",),
}
