"""Tells PyTorch the name of Multiverso's backend, without importing Multiverso.

PyTorch calls `register` at the end of ``import torch`` (the entry point group ``torch.backends``),
which must stay fast and must not fail. So this module is outside the package, which takes longer to
import, and imports it when a program makes a process group.
"""

from typing import Any


def register() -> None:
    """Register the backend and the rendezvous "multiverso", if PyTorch has process groups."""
    try:
        from torch import distributed

        if not distributed.is_available():
            return
        from torch.distributed.rendezvous import register_rendezvous_handler

        if not hasattr(distributed.Backend, "MULTIVERSO"):
            distributed.Backend.register_backend(
                "multiverso", _create, extended_api=True, devices=["cpu"]
            )
            register_rendezvous_handler("multiverso", _meet)
    except Exception:  # An exception here would make `import torch` fail.
        import logging

        logging.getLogger("multiverso").debug("the backend is not registered", exc_info=True)


def _create(options: object, _backend_options: object) -> object:
    from multiverso.torch_ext.distributed._creation import create

    return create(options)


def _meet(url: str, timeout: Any = None, **options: object) -> object:
    from multiverso.torch_ext.distributed._creation import meet

    return meet(url, timeout, **options)
