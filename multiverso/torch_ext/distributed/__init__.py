"""A backend of torch.distributed whose collectives run in the memory that ranks of a machine share.

    torchrun --nproc-per-node 4 train.py

    torch.distributed.init_process_group("multiverso")

Nothing else in a program changes: DistributedDataParallel, FSDP and the libraries on top of them
call the backend. An installed Multiverso registers its name when PyTorch is imported. Where
``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` forbids that, or PyTorch is older than 2.5, import this module.

See docs/torch-distributed.md for the operations and the limits.
"""

from multiverso._extras import needs

with needs("multiverso.torch_ext.distributed", torch="torch"):
    from multiverso.torch_ext.distributed._group import MultiversoGroup

from multiverso_torch_backend import register

register()

__all__ = ["MultiversoGroup", "register"]
