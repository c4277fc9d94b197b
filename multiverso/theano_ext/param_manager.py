"""Base class for managers of models whose parameters are read and set as lists of arrays.

Implement two methods and create the manager, which sets all workers to the master's values. Then
call `sync` after each batch to exchange deltas with all workers.
"""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso.sync._array_tensors import tensors_of
from multiverso.sync._param_manager import ParamManager

__all__ = ["MVModelParamManager"]


class MVModelParamManager(ParamManager, abc.ABC):
    """Synchronizes the parameters of a model between all workers.

    The constructor is collective: ranks pass models whose parameters have the same number, shapes
    and dtypes. When it returns, the models of all workers have the master's values.

    Parameters
    ----------
    model : object
        The model that the two methods read and write; kept as `model`.
    overlap, average : bool, optional
        As for `multiverso.sync.ParamSync`.

    Raises
    ------
    StateError, TypeError, ValueError, MismatchError
        Without a session; if the model has no parameters, or no table can hold their dtypes, as
        for `multiverso.sync.ParamSync`.

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
    ...     manager.sync()
    ...     model[0]
    array([1., 1.])

    """

    def __init__(self, model: Any, *, overlap: bool = False, average: bool = False) -> None:
        self.model = model
        super().__init__(
            lambda: _ListGroup(self, average).tensors,
            type(model).__name__,
            overlap=overlap,
            average=average,
        )

    @abc.abstractmethod
    def get_all_param_values(self) -> Sequence[NDArray[Any]]:
        """Return the values of the parameters, always in the same order."""

    @abc.abstractmethod
    def set_all_param_values(self, params: Sequence[NDArray[Any]]) -> None:
        """Set the parameters to `params`, in that order.

        The next sync overwrites these arrays, so copy them unless the model may share them.
        """


class _ListGroup:
    """All parameters of a manager; the native pass works on copies of them."""

    def __init__(self, manager: MVModelParamManager, average: bool) -> None:
        self._manager = manager
        self.addresses: list[int] | None = None
        # The model gets back arrays of the same class, because * multiplies matrices otherwise.
        values = manager.get_all_param_values()
        self._copies = [np.array(value, order="C", subok=True) for value in values]
        self.tensors = tensors_of(self._copies, average=average)
        for tensor in self.tensors:
            tensor.group = self

    def values(self) -> list[NDArray[Any]]:
        """Return the current values of the parameters."""
        values = [np.asarray(value) for value in self._manager.get_all_param_values()]
        shapes = [value.shape for value in values]
        expected = [copy.shape for copy in self._copies]
        if shapes != expected:
            raise ValueError(f"expected parameters of the shapes {expected}, received {shapes}")
        return values

    def gather(self) -> None:
        """Copy the current values for the native pass."""
        for copy, value in zip(self._copies, self.values(), strict=True):
            np.copyto(copy, value)

    load = gather

    def scatter(self) -> None:
        """Set the parameters to the copies."""
        self._manager.set_all_param_values(self._copies)
