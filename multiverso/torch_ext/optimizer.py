"""An optimiser that keeps its module in step with those of all workers as it goes."""

from collections.abc import Callable
from typing import Any, NoReturn, SupportsIndex

import torch

from multiverso.api import current_session
from multiverso.sync._param_manager import SyncStatistics
from multiverso.sync._tensor_sync import taking_part
from multiverso.torch_ext.param_manager import TorchParamManager

__all__ = ["DistributedOptimizer"]


class DistributedOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """Any optimiser of PyTorch, and a sync of the module after every `freq` of its steps.

    Making one is collective, see `TorchParamManager`. It can be used wherever the optimiser can:
    schedulers of the learning rate, hooks and gradient scalers see the optimiser's own groups and
    state. These are each worker's own, and so is what `state_dict` returns.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        What makes the steps; kept as `optimizer`.
    module : torch.nn.Module
        Whose parameters it trains.
    freq : int, optional
        How many steps make a sync, 1 or more.
    sync_buffers : {"average", "master", False}, optional
        As for `TorchParamManager`.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.

    Raises
    ------
    ValueError
        If `freq` is no positive integer.
    TypeError
        If `optimizer` is no optimiser.
    ValueError, TypeError, MismatchError, StateError
        As for `TorchParamManager`.

    """

    # Without Optimizer.__init__: groups, state and hooks are those of the optimiser.
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        module: torch.nn.Module,
        freq: int = 1,
        sync_buffers: SyncStatistics = "average",
        *,
        overlap: bool = False,
    ) -> None:
        current_session()
        with taking_part():
            _check(optimizer, freq)
        self.optimizer = optimizer
        self.freq = freq
        self.manager = TorchParamManager(module, sync_buffers, overlap=overlap)
        self._steps = 0

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the optimiser."""
        if name == "optimizer":  # not there yet
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Let the optimiser make a step, and sync if it is the last of `freq`.

        Parameters
        ----------
        closure : callable, optional
            As for the optimiser: computes the loss anew.

        Returns
        -------
        float or None
            What the optimiser returns.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `TorchParamManager.sync_all_param`.

        """
        loss = self.optimizer.step() if closure is None else self.optimizer.step(closure)
        self._steps += 1
        if self._steps % self.freq == 0:
            self.sync()
        return loss

    def sync(self) -> None:
        """Sync now, for instance when training ends between two syncs."""
        self.manager.sync_all_param()

    def wait(self) -> None:
        """With ``overlap=True``: wait for the last sync's exchange and take its result."""
        self.manager.wait()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state on this worker."""
        state: dict[str, Any] = self.optimizer.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the optimiser's state on this worker."""
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Let the optimiser train further parameters. They are synced if they were the module's."""
        self.optimizer.add_param_group(param_group)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be copied or pickled."""
        msg = (
            "DistributedOptimizer cannot be copied or pickled: it holds tables that the ranks of "
            "one session share. Copy or pickle what state_dict() returns"
        )
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Return what it wraps."""
        return f"DistributedOptimizer(freq={self.freq}, {self.optimizer!r})"


def _check(optimizer: object, freq: object) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        msg = f"optimizer: expected a torch.optim.Optimizer, received {kind}"
        raise TypeError(msg)
    if isinstance(freq, bool) or not isinstance(freq, int) or freq < 1:
        msg = f"freq: expected an int of 1 or more, received {freq!r}"
        raise ValueError(msg)
