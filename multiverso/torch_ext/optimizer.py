"""An optimizer that synchronizes its module between the workers."""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex, cast

import torch

from multiverso._native import capi
from multiverso.api import current_session
from multiverso.sync._param_manager import checked_freq
from multiverso.sync._shares import SyncStatistics, averages_by_default
from multiverso.sync._tensor_sync import failing_on_all_ranks
from multiverso.torch_ext.embedding import layers_of
from multiverso.torch_ext.param_manager import TorchParamManager

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from multiverso.sync._options import AdapterOptions

__all__ = ["DistributedOptimizer"]

#: What `DistributedOptimizer` adds to an optimizer.
_ADDED: Final = ("freq", "manager", "sync", "wait")


class _Itself:
    """An attribute whose value is the object itself, unless the object has its own."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        return instance


class DistributedOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """Lets any PyTorch optimizer sync its module after every `freq` of its steps.

    The constructor is collective, see `TorchParamManager`. It returns the given optimizer, whose
    class becomes a subclass of its own class and of `DistributedOptimizer`. So everything else that
    the optimizer does, and what programs and libraries do with it, is as before: learning-rate
    schedulers, hooks, gradient scalers, ``isinstance``, and assignments to its attributes. Each
    worker has its own state, also in `state_dict`. When a gradient scaler makes the optimizer skip
    a step, the worker syncs nevertheless, unless the session is in async mode.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        The optimizer that makes the steps. It may be passed again in a later session.
    module : torch.nn.Module
        The module that has all parameters of the optimizer.
    freq : int, optional
        The number of steps from one sync to the next, 1 or more.
    sync_buffers : {"average", "master", False}, optional
        As for `TorchParamManager`.
    overlap, average, **options : optional
        As for `multiverso.sync.ParamSync`, whose `sync_every` is `freq` here. `average` is True by
        default, with a FutureWarning if there are several workers, because earlier versions summed.
    scaler : torch.amp.GradScaler, optional
        The scaler of the loss, if the module has an `Embedding` or an `EmbeddingBag`.

    Raises
    ------
    TypeError, ValueError, MismatchError, StateError
        If `optimizer` is not one of the module's parameters, has an attribute named as one of this
        class, or already syncs a module in this session; as for `TorchParamManager`.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext import DistributedOptimizer
    >>> with mv.session():
    ...     model = torch.nn.Linear(2, 1)
    ...     sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    ...     optimizer = DistributedOptimizer(sgd, model, average=True)
    ...     for batch in range(3):
    ...         optimizer.zero_grad()
    ...         model(torch.ones(8, 2)).square().mean().backward()
    ...         optimizer.step()  # trains, and syncs with the other workers

    """

    #: The optimizer itself.
    optimizer: Any = _Itself()
    _distribution: "_Distribution"

    def __new__(
        cls,
        optimizer: torch.optim.Optimizer,
        module: torch.nn.Module,
        freq: int = 1,
        sync_buffers: SyncStatistics = "average",
        *,
        overlap: bool = False,
        average: bool | None = None,
        scaler: Any = None,
        **options: "Unpack[AdapterOptions]",
    ) -> "DistributedOptimizer":
        """Add the sync to `optimizer`, and return it."""
        current_session()
        averages = averages_by_default(average, options, cls.__name__)
        with failing_on_all_ranks():
            _require_plain(optimizer)
            freq = checked_freq(freq)
            if isinstance(module, torch.nn.Module):  # The manager rejects anything else.
                _require_parameters_of(module, optimizer.param_groups)
        manager = TorchParamManager(
            module, sync_buffers, overlap=overlap, average=averages, sync_every=freq, **options
        )
        distribution = _Distribution(optimizer, manager, freq, scaler)
        if not isinstance(optimizer, DistributedOptimizer):
            bases: Any = (cls, type(optimizer))
            optimizer.__class__ = _distributed_class(*bases)
        optimizer._distribution = distribution
        return cast("DistributedOptimizer", optimizer)

    # The optimizer has been initialized. Python calls this method on the result of `__new__`.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    @property
    def manager(self) -> TorchParamManager:
        """The manager of the module."""
        return self._distribution.manager

    @property
    def freq(self) -> int:
        """The number of steps from one sync to the next."""
        return self._distribution.freq

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Make a step as the optimizer does, and sync after every `freq` steps.

        The gradients of an `Embedding` or `EmbeddingBag` of the module are sent to its table.

        It raises the errors of [`ParamSync.sync`][multiverso.sync.ParamSync.sync].

        Parameters
        ----------
        *args, **kwargs
            As for the optimizer, for instance a function that computes the loss again.

        Returns
        -------
        float or None
            The result of the optimizer.

        """
        return self._distribution.step(self, super().step, args, kwargs)

    def sync(self) -> None:
        """Sync all parameters now, for instance when training ends between two syncs."""
        self.manager.sync()

    def wait(self) -> None:
        """Wait for the exchange of the last sync and apply its result, with ``overlap=True``."""
        self.manager.wait()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Reset the gradients, also those of the rows of embedding layers."""
        super().zero_grad(*args, **kwargs)
        for layer in self._distribution.layers:
            layer.discard()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Let the optimizer train more parameters of the module.

        Raises
        ------
        ValueError
            If the module does not have them.

        """
        super().add_param_group(param_group)
        try:
            _require_parameters_of(self.manager.module, self.param_groups[-1:])
        except ValueError:
            self.param_groups.pop()
            raise

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError: the optimizer cannot be copied or pickled."""
        raise TypeError(
            "DistributedOptimizer cannot be copied or pickled, because it holds tables of the "
            "session. Copy or pickle the result of state_dict() instead"
        )

    def __repr__(self) -> str:
        """Return the frequency and the description of the optimizer."""
        return f"DistributedOptimizer(freq={self.freq}, {super().__repr__()})"


class _Distribution:
    """The module of an optimizer, and what follows a step of the optimizer."""

    def __init__(self, optimizer: Any, manager: TorchParamManager, freq: int, scaler: Any) -> None:
        self.manager = manager
        self.freq = freq
        self.layers = layers_of(manager.module)
        for layer in self.layers:
            layer.expect_steps()
        self._scaler = scaler
        earlier = getattr(optimizer, "_distribution", None)
        #: Whether the optimizer itself divides by the scale and skips steps, as fused ones do.
        self._skips_itself: bool = (
            earlier._skips_itself
            if earlier is not None
            else getattr(optimizer, "_step_supports_amp_scaling", False)
        )
        is_async = current_session().options.mode == capi.MV_MODE_ASYNC
        # A scaler calls the step of such an optimizer also when a gradient is infinite.
        optimizer._step_supports_amp_scaling = self._skips_itself or not is_async
        # A learning-rate scheduler has put a function in the place of the method.
        if earlier is None and (step := vars(optimizer).get("step")) is not None:
            optimizer.step = self._with_sync(optimizer, step)

    def _with_sync(self, optimizer: Any, step: Callable[..., Any]) -> Callable[..., Any]:
        reference = weakref.ref(optimizer)

        @functools.wraps(step)
        def step_and_sync(*args: Any, **kwargs: Any) -> Any:
            owner: Any = reference()
            return owner._distribution.step(owner, step, args, kwargs)

        return step_and_sync

    def step(
        self, optimizer: Any, step: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Call `step`, unless a gradient scaler has found an infinite gradient, and sync."""
        # A gradient scaler sets these attributes during the step.
        found_inf = getattr(optimizer, "found_inf", None)
        scale = getattr(optimizer, "grad_scale", None)
        is_skipped = found_inf is not None and bool(found_inf)
        result = None
        if self._skips_itself or found_inf is None:
            result = step(*args, **kwargs)
        elif not is_skipped:
            if scale is not None:
                _unscale(optimizer, scale)
            result = _without_scale(optimizer, step, args, kwargs)
        factor = 1.0 if self._scaler is None else self._scaler.get_scale()
        for layer in self.layers:
            if is_skipped:
                layer.discard()
            layer.step(factor)
        self.manager.step()
        return result


def _without_scale(
    optimizer: Any, step: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    """Call `step` without the attributes of a scaler, which optimizers that cannot scale refuse."""
    attributes = vars(optimizer)
    hidden = {name: attributes.pop(name) for name in ("grad_scale", "found_inf")}
    try:
        return step(*args, **kwargs)
    finally:
        attributes |= hidden


def _unscale(optimizer: Any, scale: torch.Tensor) -> None:
    """Divide the gradients by the scale of the loss, as `torch.amp.GradScaler.unscale_` does."""
    inverse = scale.double().reciprocal().float()
    for group in optimizer.param_groups:
        for gradient in (p.grad for p in group["params"] if p.grad is not None):
            if gradient.dtype == torch.float16:
                raise ValueError("expected gradients that can be unscaled, received float16")
            values = gradient._values() if gradient.is_sparse else gradient
            values.mul_(inverse.to(values.device))


def _require_plain(optimizer: object) -> None:
    """Raise an error unless `optimizer` is an optimizer that syncs no module yet."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        msg = f"optimizer: expected a torch.optim.Optimizer, received {type(optimizer).__name__}"
        raise TypeError(msg)
    if isinstance(optimizer, DistributedOptimizer):
        if optimizer.manager.is_live():
            msg = "optimizer: expected one that syncs no module, received a DistributedOptimizer"
            raise ValueError(msg)
    elif names := [name for name in _ADDED if hasattr(optimizer, name)]:
        raise TypeError(f"optimizer: expected no attributes {_ADDED}, received one with {names}")


def _require_parameters_of(module: torch.nn.Module, groups: Iterable[dict[str, Any]]) -> None:
    """Raise ValueError if the groups of an optimizer have parameters that a module has not."""
    known = {id(parameter) for parameter in module.parameters()}
    trained = [parameter for group in groups for parameter in group["params"]]
    if unknown := [tuple(p.shape) for p in trained if id(p) not in known]:
        shapes = ", ".join(map(str, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
        raise ValueError(
            f"optimizer: expected parameters of the module, which are synchronized, received "
            f"{len(unknown)} of {len(trained)} that it has not, of shape {shapes}; pass a module "
            f"with all of them, such as torch.nn.ModuleList([model, loss])"
        )


@functools.cache
def _distributed_class(cls: type, base: type) -> type:
    """Return the subclass of an optimizer's class that also inherits from `cls`."""

    # Hooks and profiling are those of the base's method. The copied attributes say so to PyTorch.
    @functools.wraps(base.step)  # type: ignore[attr-defined]
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return cls.step(self, *args, **kwargs)  # type: ignore[attr-defined]

    members = {"step": step, "__module__": cls.__module__, "__doc__": base.__doc__}
    return type(base.__name__, (cls, base), members)
