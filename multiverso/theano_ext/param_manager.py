"""A base for whatever has all parameters of a model at hand: two methods make a manager of it.

Make the manager, and all workers have the master's values; train a batch, call
`sync_all_param`, and what it has learned is everybody's.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso.api import current_session
from multiverso.sync import ParamSync
from multiverso.sync._tensor_sync import taking_part
from multiverso.tables import ArrayTableHandler

__all__ = ["MVModelParamManager"]


class MVModelParamManager(abc.ABC):
    """Keeps a model's parameters in step with those of all workers.

    Making one is collective: all ranks make it of models with parameters of the same number, shapes
    and dtypes. The master's values are set on all workers.

    Parameters
    ----------
    model : object
        What the two methods read and write; kept as `model`.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.

    Raises
    ------
    StateError
        Before `multiverso.init` or after `multiverso.shutdown`.
    TypeError, ValueError
        There are no parameters, or of dtypes that no table can hold; see `multiverso.sync`.
    MismatchError
        The ranks' parameters differ in number, shape or dtype.

    Examples
    --------
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from multiverso.theano_ext.param_manager import MVModelParamManager
    >>> class ListManager(MVModelParamManager):
    ...     def get_all_param_values(self):
    ...         return self.model
    ...
    ...     def set_all_param_values(self, params):
    ...         self.model[:] = [value.copy() for value in params]
    >>> with mv.session():
    ...     model = [np.zeros(2)]
    ...     manager = ListManager(model)
    ...     model[0] += 1  # training
    ...     manager.sync_all_param()
    ...     model[0]
    array([1., 1.])
    """

    def __init__(self, model: Any, *, overlap: bool = False) -> None:
        current_session()
        self.model = model
        with taking_part():
            # Copies: what the model gives may be its own memory, a constant, or nobody's.
            self._values = [np.array(value, order="C") for value in self.get_all_param_values()]
        self._sync = ParamSync(self._values, name=type(model).__name__, overlap=overlap)
        self.set_all_param_values(self._values)

    @property
    def tables(self) -> tuple[ArrayTableHandler, ...]:
        """The tables: one for each dtype, in the order in which these come in the model."""
        return self._sync.tables

    @abc.abstractmethod
    def get_all_param_values(self) -> Sequence[NDArray[Any]]:
        """Return the parameters' values, in an order that never changes."""

    @abc.abstractmethod
    def set_all_param_values(self, params: Sequence[NDArray[Any]]) -> None:
        """Set the parameters to `params`, in that order.

        The arrays are overwritten at the next sync, so a model that keeps them shares them.
        """

    def sync_all_param(self) -> None:
        """Add what this worker has learned since the last time, fetch what all have learned.

        Raises
        ------
        ValueError
            The number of parameters or the shape of one has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.sync`.
        """
        self._pass(self._sync.sync)

    def wait(self) -> None:
        """With ``overlap=True``: wait for the last sync's exchange and take its result.

        Raises
        ------
        ValueError, StateError, OperationTimeout, PeerLostError, AbortedError
            As `sync_all_param`.
        """
        self._pass(self._sync.wait)

    def _pass(self, make: Callable[[], None]) -> None:
        values = self.get_all_param_values()
        shapes = [np.shape(value) for value in values]
        expected = [value.shape for value in self._values]
        if shapes != expected:
            raise ValueError(f"expected parameters of the shapes {expected}, received {shapes}")
        for mine, value in zip(self._values, values, strict=True):
            np.copyto(mine, value)
        try:
            make()
        finally:  # what an interrupted call has done is in the values
            self.set_all_param_values(self._values)
