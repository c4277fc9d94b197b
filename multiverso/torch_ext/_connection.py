"""The parameter by which optimizers and functions of PyTorch reach the rows of a layer."""

import copy
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from torch.optim import optimizer as optimizers

from multiverso.api import current_session
from multiverso.sync._row_gradients import RowGradients


class Connection(torch.nn.Parameter):  # type: ignore[misc]
    """A scalar zero whose gradient is the norm of the waiting gradients of a layer's rows.

    It is a parameter of the layer, so ``zero_grad``, ``clip_grad_norm_`` and `GradScaler` find it,
    and what they do to its gradient is done to the rows. Autograd itself only adds zeros to the
    gradient, which `DistributedDataParallel` may average. Steps of optimizers do not see the
    gradient, so the parameter stays zero, and optimizers have no state for it.
    """

    #: The gradients of the layer's rows.
    rows: "ConnectedGradients | None" = None

    def __new__(cls, data: torch.Tensor, requires_grad: bool = True) -> "Connection":
        """Create a parameter that is not connected with rows yet."""
        return super().__new__(cls, data, requires_grad)  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Connection":
        """Return the parameter of a copy of the layer."""
        copied: Connection = super().__deepcopy__(memo)
        copied.rows = copy.deepcopy(self.rows, memo)
        return copied

    @property
    def grad(self) -> torch.Tensor | None:
        """The norm of the gradients that wait, or None."""
        if self.rows is None:
            gradient: torch.Tensor | None = torch.Tensor.grad.__get__(self)
            return gradient
        return self.rows.gradient_of(self)

    @grad.setter
    def grad(self, gradient: torch.Tensor | None) -> None:
        if self.rows is None or gradient is None:
            torch.Tensor.grad.__set__(self, gradient)
        if self.rows is not None:
            self.rows.replace_gradient(self, gradient)


class ConnectedGradients(RowGradients):
    """The gradients of the rows of a layer, and what a program does to their norm."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self._shown: torch.Tensor | None = None  # The norm, which the program may change.
        self._norm = 0.0  # What it was when the program first saw it.
        self._rate = 1.0  # Of the optimizer, as a factor of the one that it is based on.
        self._first_rate: float | None = None  # The highest one, if no scheduler has noted one.
        self._has_warned = False  # Of a rate above the first one.
        self._table_rate = 0.0 if self.is_view else table._program_rate
        self._set_rate: float | None = None  # What this object has given the table.
        self._is_stepping = False
        self._in_step: torch.Tensor | None = None  # What an optimizer sees in its step.

    def __deepcopy__(self, memo: dict[int, Any]) -> "ConnectedGradients":
        """Return an object without gradients, for a copy of the layer on the same table."""
        return type(self)(self.table)

    def gradient_of(self, connection: Connection) -> torch.Tensor | None:
        """Return the gradient of the connection, which the program may change in place."""
        if self._is_stepping:
            return self._in_step
        if self._shown is None and self.is_waiting():
            # 16 bits are too few for a factor, so the norm has 32 bits also after `half()`.
            dtype = torch.promote_types(connection.dtype, torch.float32)
            self._shown = torch.tensor(self.norm(), dtype=dtype, device=connection.device)
            self._norm = float(self._shown)
        return self._shown

    def replace_gradient(self, connection: Connection, gradient: torch.Tensor | None) -> None:
        """Accept another gradient of the connection; None drops the gradients of the rows."""
        if gradient is None:
            self._shown = None
            self.drop()
        elif not self._is_stepping:
            self.gradient_of(connection)
            self._shown = gradient

    def settle(self, scale: float = 1.0) -> float | None:
        """Do to the rows what the program has done to their norm.

        Return the scale of the loss that the gradients still have. It is None if a scaler of the
        loss has divided them and then skipped the step of the optimizer.
        """
        shown, self._shown = self._shown, None
        if shown is None or not self.is_waiting():
            return scale
        factor = _ratio(float(shown), self._norm)
        if scale != 1.0 and math.isclose(factor * scale, 1.0, rel_tol=1e-5):
            self.drop()
            return None
        if factor == 0.0 and math.isfinite(self._norm):
            self.drop()
        elif factor != 1.0:
            self.multiply(factor)
        return scale

    def note_look_up(self) -> None:
        """Note that rows are looked up for training."""
        if self._is_stepping and self._in_step is None:
            # The step of an optimizer has raised an exception and skipped `end_step`.
            self._is_stepping = False
            self.drop()
        super().note_look_up()

    def collect(self, ids: NDArray[Any], gradients: NDArray[Any]) -> None:
        """Keep the gradients of rows, after doing to the earlier ones what the program has done."""
        self.settle()
        super().collect(ids, gradients)

    def begin_step(self, connection: Connection, *, has_closure: bool) -> None:
        """Hide the gradient from an optimizer that begins its step.

        A closure computes gradients, after it has reset those that it sees.
        """
        self._in_step = torch.zeros_like(connection) if has_closure else None
        self._is_stepping = True

    def end_step(self, connection: Connection, optimizer: Any, group: dict[str, Any]) -> None:
        """Keep the gradients for the step of the layer, unless the optimizer has dropped its own.

        Optimizers with a fused implementation divide by the scale of the loss in their step, and do
        nothing if a gradient is not finite.
        """
        self._is_stepping = False
        if base := self._base_rate(optimizer, group):
            factor = float(group["lr"]) / base
            # Schedulers that multiply the last rate round it.
            self._rate = 1.0 if math.isclose(factor, 1.0, rel_tol=1e-6) else factor
        found = getattr(optimizer, "found_inf", None)
        if found is not None and float(found):
            self.drop()
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None and (norm := self.gradient_of(connection)) is not None:
            norm.div_(float(scale))
        is_changed = self._shown is not None and float(self._shown) != self._norm
        self.settle()
        self.accept(is_unscaled=is_changed)

    def _base_rate(self, optimizer: Any, group: dict[str, Any]) -> float:
        """Return the rate of the optimizer that corresponds to the one of the new table."""
        # A scheduler notes the rate that it begins with. OneCycleLR notes the peak, too.
        noted = group.get("max_lr", group.get("initial_lr"))
        if noted is not None:
            return float(noted)
        rate = float(group["lr"])
        if self._first_rate is None:
            # A job that resumes finds the optimizer and the table as the earlier job left them.
            created = float(optimizer.defaults.get("lr", 0.0))
            is_resumed = created and math.isclose(
                self.table.options["learning_rate"], self._table_rate * rate / created
            )
            self._first_rate = created if is_resumed else rate
        # A program that sets the rate itself may begin with small ones.
        self._first_rate = max(self._first_rate, rate)
        return self._first_rate

    def _prepare_add(self) -> None:
        """Set the table's learning rate on the master, if a scheduler has changed the optimizer's.

        The table's rate is the one it was created with, times the factor of the schedule. Where the
        program sets another one itself, that remains.
        """
        rate = self._table_rate * self._rate
        if rate == (self._table_rate if self._set_rate is None else self._set_rate):
            return
        session = current_session()
        if not session.is_master_worker():
            return
        if self._rate > 1.0 and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"the optimizer's learning rate is {self._rate:g} times the one with which its "
                f"scheduler began, so that of table '{self.table.name}' becomes {rate:g}: with "
                "CyclicLR, create the table with the lowest rate",
                RuntimeWarning,
                stacklevel=2,
            )
        current = self.table.options["learning_rate"]
        # Another layer of the table may have set the rate already.
        if current != rate:
            if self._set_rate is not None and current != self._set_rate:
                return
            # This waits for the get of the round, and so for the rounds that use the rate before.
            self.table._set_scheduled_rate(rate)
        self._set_rate = rate


def _ratio(value: float, norm: float) -> float:
    """Return the factor by which a program has changed a norm."""
    if value == norm or norm == 0.0 or (math.isnan(value) and math.isnan(norm)):
        return 1.0
    if not math.isfinite(norm):
        return 0.0  # Of a gradient that is not finite, this makes NaN, and of the others zeros.
    return value / norm


def _connections(
    optimizer: Any,
) -> Iterator[tuple[Connection, ConnectedGradients, dict[str, Any]]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            is_connected = isinstance(parameter, Connection) and parameter.rows is not None
            if is_connected and not parameter.rows.is_view:
                yield parameter, parameter.rows, group


def _before_step(optimizer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    has_closure = any(map(callable, (*arguments[1:], *options.values())))
    for connection, rows, _ in _connections(optimizer):
        rows.begin_step(connection, has_closure=has_closure)


def _after_step(optimizer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    for connection, rows, group in _connections(optimizer):
        rows.end_step(connection, optimizer, group)


optimizers.register_optimizer_step_pre_hook(_before_step)
optimizers.register_optimizer_step_post_hook(_after_step)
