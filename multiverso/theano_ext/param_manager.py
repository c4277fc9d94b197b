"""Base class for managers of models whose parameters are read and set as lists of arrays.

Implement two methods and create the manager, which sets all workers to the master's values. Then
call `sync_all_param` after each batch to exchange deltas with all workers.
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
    """Synchronizes the parameters of a model between all workers.

    Creating one is collective: all ranks pass models whose parameters have the same number, shapes
    and dtypes. When it returns, the models of all workers have the master's values.

    Parameters
    ----------
    model : object
        The model that the two methods read and write; kept as `model`.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.

    Raises
    ------
    StateError
        Before `multiverso.init` or after `multiverso.shutdown`.
    TypeError, ValueError
        If there are no parameters, or no table can hold their dtypes, as for
        `multiverso.sync.ParamSync`.
    MismatchError
        If the parameters of another rank differ in number, shape or dtype.

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
            # Copies, because the model may return its own memory, a constant or a temporary.
            self._values = [np.array(value, order="C") for value in self.get_all_param_values()]
        self._sync = ParamSync(self._values, name=type(model).__name__, overlap=overlap)
        self.set_all_param_values(self._values)

    @property
    def tables(self) -> tuple[ArrayTableHandler, ...]:
        """The tables: one for each dtype, in the order of their first use in the model."""
        return self._sync.tables

    @abc.abstractmethod
    def get_all_param_values(self) -> Sequence[NDArray[Any]]:
        """Return the values of the parameters, always in the same order."""

    @abc.abstractmethod
    def set_all_param_values(self, params: Sequence[NDArray[Any]]) -> None:
        """Set the parameters to `params`, in that order.

        The next sync overwrites these arrays, so copy them unless the model may share them.
        """

    def sync_all_param(self) -> None:
        """Add this worker's delta since the last sync, and fetch the deltas of all workers.

        Raises
        ------
        ValueError
            If the number of parameters or the shape of one has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.sync`.

        """
        self._run_on_values(self._sync.sync)

    def wait(self) -> None:
        """Wait for the exchange of the last sync and apply its result, with ``overlap=True``.

        Raises
        ------
        ValueError, StateError, OperationTimeout, PeerLostError, AbortedError
            As for `sync_all_param`.

        """
        self._run_on_values(self._sync.wait)

    def _run_on_values(self, run: Callable[[], None]) -> None:
        values = self.get_all_param_values()
        shapes = [np.shape(value) for value in values]
        expected = [value.shape for value in self._values]
        if shapes != expected:
            raise ValueError(f"expected parameters of the shapes {expected}, received {shapes}")
        for mine, value in zip(self._values, values, strict=True):
            np.copyto(mine, value)
        try:
            run()
        finally:  # the values include the result of an interrupted call
            self.set_all_param_values(self._values)
