"""An optimizer that synchronizes its module between the workers."""

from collections.abc import Callable
from typing import Any, NoReturn, SupportsIndex

import torch

from multiverso.api import current_session
from multiverso.sync._param_manager import SyncStatistics, checked_freq
from multiverso.sync._tensor_sync import failing_on_all_ranks
from multiverso.torch_ext.embedding import layers_of
from multiverso.torch_ext.param_manager import TorchParamManager

__all__ = ["DistributedOptimizer"]


class DistributedOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """Wraps any PyTorch optimizer and syncs the module after every `freq` of its steps.

    The constructor is collective, see `TorchParamManager`. You can use the object wherever you can
    use the optimizer: learning-rate schedulers, hooks and gradient scalers see the optimizer's own
    groups and state. Each worker has its own state, also in `state_dict`.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        The optimizer that makes the steps; kept as `optimizer`.
    module : torch.nn.Module
        The module whose parameters the optimizer trains.
    freq : int, optional
        The number of steps from one sync to the next, 1 or more.
    sync_buffers : {"average", "master", False}, optional
        As for `TorchParamManager`.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.
    average : bool, optional
        Whether each delta is divided by the number of workers, see `multiverso.sync.ParamSync`.
    scaler : torch.amp.GradScaler, optional
        The scaler of the loss, if the module has an `Embedding` or an `EmbeddingBag`.
    **options : optional
        `fragments`, `wire` and `weight`, as for `multiverso.sync.ParamSync`.

    Raises
    ------
    ValueError
        If `freq` is not a positive integer.
    TypeError
        If `optimizer` is not an optimizer.
    ValueError, TypeError, MismatchError, StateError
        As for `TorchParamManager`.

    """

    # This does not call Optimizer.__init__: groups, state and hooks are the wrapped optimizer's.
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        module: torch.nn.Module,
        freq: int = 1,
        sync_buffers: SyncStatistics = "average",
        *,
        overlap: bool = False,
        average: bool = False,
        scaler: Any = None,
        **options: Any,
    ) -> None:
        current_session()
        with failing_on_all_ranks():
            if not isinstance(optimizer, torch.optim.Optimizer):
                kind = type(optimizer).__name__
                msg = f"optimizer: expected a torch.optim.Optimizer, received {kind}"
                raise TypeError(msg)
            self.freq = checked_freq(freq)
        self.optimizer = optimizer
        self.manager = TorchParamManager(
            module, sync_buffers, overlap=overlap, average=average, sync_every=freq, **options
        )
        self._scaler = scaler
        self._layers = layers_of(module)
        for layer in self._layers:
            layer.expect_steps()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the optimizer."""
        if name == "optimizer":  # The constructor has not set it yet.
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Let the optimizer make a step, and sync after every `freq` steps.

        The gradients of an `Embedding` or `EmbeddingBag` of the module are sent to its table.

        Parameters
        ----------
        closure : callable, optional
            A function that computes the loss again, as for the optimizer.

        Returns
        -------
        float or None
            The result of the optimizer.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `TorchParamManager.sync_all_param`.

        """
        loss = self.optimizer.step() if closure is None else self.optimizer.step(closure)
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        for layer in self._layers:
            layer.step(scale)
        self.manager.step()
        return loss

    def sync(self) -> None:
        """Sync all parameters now, for instance when training ends between two syncs."""
        self.manager.sync_all_param()

    def wait(self) -> None:
        """Wait for the exchange of the last sync and apply its result, with ``overlap=True``."""
        self.manager.wait()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""
        self.optimizer.zero_grad(set_to_none=set_to_none)
        for layer in self._layers:
            layer.discard()

    def state_dict(self) -> dict[str, Any]:
        """Return this worker's state of the optimizer."""
        state: dict[str, Any] = self.optimizer.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set this worker's state of the optimizer."""
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Let the optimizer train more parameters, which are synced if the module had them."""
        self.optimizer.add_param_group(param_group)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError: the optimizer cannot be copied or pickled."""
        msg = (
            "DistributedOptimizer cannot be copied or pickled, because it holds tables of the "
            "session. Copy or pickle the result of state_dict() instead"
        )
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Return the frequency and the wrapped optimizer."""
        return f"DistributedOptimizer(freq={self.freq}, {self.optimizer!r})"
