"""Shared variables of PyTensor, Theano and Aesara that all workers train together.

Each worker has its own copy of a variable and trains it as usual. `mv_sync` adds the delta of the
copy since the last sync to a table, and sets the copy to the table's new value::

    from multiverso.theano_ext import sharedvar

    W = sharedvar.mv_shared(np.zeros((784, 10), "float32"), name="W", borrow=True)
    train = pytensor.function([x, y], cost, updates=[(W, W - 0.1 * pytensor.grad(cost, W))])
    for batch in batches:
        train(*batch)
        sharedvar.sync_all_mv_shared_vars()

Framework
    The first of PyTensor, Aesara and Theano that the program has imported. If it has imported
    none, the first that can be imported.

Variables
    `mv_shared` returns the framework's own shared variable, whose class is a subclass that adds
    `mv_sync`. You can use it wherever you can use a shared variable.

    A clone and a shallow copy share the value and the table with the original: synchronizing one
    synchronizes the other.

    A pickle and a deep copy have a value of their own and no table. They are ordinary shared
    variables, whose `mv_sync` raises StateError until all ranks call
    ``MVSharedVariable(variable)``.

    A variable belongs to the session in which it was attached. Until the session ends, it keeps and
    synchronizes the variable even if the program has dropped it, so that all ranks always
    synchronize the same variables. Afterwards the variable is like a variable from a pickle.
"""

import functools
import logging
from typing import Any

import numpy as np

import multiverso as mv
from multiverso.api import current_session
from multiverso.sync._options import SyncOptions
from multiverso.sync._shares import share_of_parameter
from multiverso.sync._tensor_sync import TensorSync, failing_on_all_ranks
from multiverso.theano_ext._backend import choose_backend
from multiverso.theano_ext._tensors import SharedTensor, checked_value, name_of

__all__ = ["MVSharedVariable", "mv_shared", "sync_all_mv_shared_vars"]

_log = logging.getLogger("multiverso")


class _Link:
    """The table of a shared variable in a session, set to the master's value. Collective."""

    def __init__(self, variable: Any, average: bool) -> None:
        self._session = current_session()
        self._variable, self._average = variable, average
        name = _short_name(variable)
        self._sync = TensorSync(self._tensors, name, SyncOptions(average=average), {})
        value = variable.get_value(borrow=True)
        if not np.array_equal(self._given, value, equal_nan=True):
            number = self._session.worker_id
            _log.warning("%s: worker %d now has the value of worker 0, not its own", name, number)
        del self._given

    def _tensors(self) -> list[SharedTensor]:
        tensor = _tensor_of(self._variable, self._average)
        self._given = np.array(self._variable.get_value(borrow=True))
        return [tensor]

    def is_live(self) -> bool:
        """Return whether the session in which the variable was attached is still open."""
        return not self._session.closed

    def sync(self) -> None:
        """Add the variable's delta to the table, and set both to the sum."""
        self._sync.sync()


class MVSharedVariable:
    """A shared variable that is synchronized through a table.

    ``MVSharedVariable(svobj, average=False)`` attaches an existing shared variable of PyTensor,
    Theano or Aesara to a new table of its size and returns the same object, so that graphs and
    functions that use it stay valid. Collective: it blocks until all ranks have called it for the
    same variable, and sets it to the master's value on all workers. A variable that already has a
    table keeps it, with its `average`.

    Parameters
    ----------
    svobj : shared variable
        A variable of any shape with at least one element, of float16 (its table is float32),
        float32, float64, int32 or int64. Its shape must not change.
    average : bool, optional
        Whether each delta is divided by the number of workers, see `multiverso.sync.ParamSync`.

    Raises
    ------
    StateError
        Before `multiverso.init` or after `multiverso.shutdown`.
    TypeError, ValueError
        If `svobj` is not a shared variable, or its value is not a dense array of one of these
        dtypes with an element.
    MismatchError
        If the ranks' variables differ in shape, in the dtype of their tables or in `average`.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import multiverso as mv
    >>> from multiverso.theano_ext.sharedvar import MVSharedVariable
    >>> with mv.session():
    ...     weights = MVSharedVariable(pytensor.shared(np.array([1.0, 2.0]), name="w"))
    ...     weights.set_value(weights.get_value() + 1)  # training
    ...     weights.sync()
    ...     weights.get_value()
    array([2., 3.])

    """

    __slots__ = ()  # `_synchronized_class` says why.
    _mv_link: _Link | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Attach `svobj` and return it, or create a variable of a class with `sync`."""
        if cls is MVSharedVariable:
            return _attach(*args, **kwargs)
        return super().__new__(cls)

    def sync(self) -> None:
        """Add the delta since the last sync to the table, and set the variable to the sum.

        Afterwards the table and the variable have the value ``table + (value - last value)``, where
        `average` divides the difference. Functions that use the variable see it at once. It makes
        one pass over the memory and, except for float16, allocates nothing of its size. It waits
        for other workers if the mode requires it: in sync mode all workers make equally many calls
        and end with bitwise identical values.

        In the other modes, on one node, a call after an interrupted one resumes it: no delta is
        lost or added twice, see `multiverso.sync.ParamSync.sync`.

        Raises
        ------
        StateError
            If no session is open, or the variable does not belong to it because it comes from a
            pickle, a deep copy or an earlier session; also as for `multiverso.sync.ParamSync.sync`.
        ValueError
            If the shape of the value has changed since the variable was attached.
        OperationTimeout, PeerLostError, AbortedError
            If a worker that this call waits for does not call it. The message names the worker.

        """
        current_session()
        link = self._mv_link
        if link is None:
            raise mv.errors.StateError(
                f"{name_of(self)} has no table, because it comes from a pickle or a deep copy;"
                " call MVSharedVariable(variable) on all ranks to attach it"
            )
        if not link.is_live():
            raise mv.errors.StateError(
                f"{name_of(self)} belongs to a session that has been shut down;"
                " call MVSharedVariable(variable) on all ranks to attach it to the current one"
            )
        link.sync()

    def mv_sync(self) -> None:
        """Call `sync`, which has this name in Multiverso 2016."""
        self.sync()


def mv_shared(
    value: Any,
    name: str | None = None,
    strict: bool = False,
    allow_downcast: Any = None,
    *,
    average: bool = False,
    **kwargs: Any,
) -> Any:
    """Create a shared variable that all workers train together.

    Collective, as `MVSharedVariable` is.

    Parameters
    ----------
    value, name, strict, allow_downcast, **kwargs
        As for the ``shared`` of the framework, including `borrow`. `value` is an array of any
        shape with at least one element, or a scalar, of a dtype as for `MVSharedVariable`. Only
        its shape and dtype matter on workers other than the master. These log a line if they give
        another value.
    average : bool, optional
        Whether each delta is divided by the number of workers, see `multiverso.sync.ParamSync`.

    Returns
    -------
    shared variable
        A shared variable of the framework with the method `MVSharedVariable.mv_sync`.

    Raises
    ------
    ImportError, StateError, TypeError, ValueError, MismatchError
        If none of PyTensor, Aesara and Theano can be imported, and as for `MVSharedVariable`.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import multiverso as mv
    >>> from multiverso.theano_ext.sharedvar import mv_shared
    >>> with mv.session():
    ...     weights = mv_shared(np.array([1.0, 2.0]), name="w")
    ...     weights.get_value()
    array([1., 2.])

    """
    current_session()
    with failing_on_all_ranks():
        variable = choose_backend().shared(
            value, name=name, strict=strict, allow_downcast=allow_downcast, **kwargs
        )
    return _attach(variable, average)


def sync_all_mv_shared_vars() -> None:
    """Synchronize all variables of the current session, in the order in which they were attached.

    Raises
    ------
    StateError
        Before `multiverso.init`, after `multiverso.shutdown`, or if this rank is not a worker.
    ValueError
        If the shape of a variable has changed. The variables before it have been synchronized.
    OperationTimeout, PeerLostError, AbortedError
        As for `MVSharedVariable.mv_sync`.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import multiverso as mv
    >>> from multiverso.theano_ext.sharedvar import mv_shared, sync_all_mv_shared_vars
    >>> with mv.session():
    ...     weights, bias = mv_shared(np.ones(2)), mv_shared(0.0)
    ...     bias.set_value(1.0)  # training
    ...     sync_all_mv_shared_vars()

    """
    for link in current_session().companions.get(__name__, []):
        link.sync()


def _attach(svobj: Any, average: bool = False) -> Any:
    """Attach a shared variable to a table of the current session, see `MVSharedVariable`."""
    current_session()
    link = getattr(svobj, "_mv_link", None)
    if link is not None and link.is_live():
        return svobj
    link = _Link(svobj, average)
    if not isinstance(svobj, MVSharedVariable):
        framework_class: Any = type(svobj)
        svobj.__class__ = _synchronized_class(framework_class)
    svobj._mv_link = link
    current_session().companions.setdefault(__name__, []).append(link)
    return svobj


def _tensor_of(variable: Any, average: bool) -> SharedTensor:
    share = share_of_parameter(checked_value(variable).dtype.name, average)
    tensor = SharedTensor(variable, share)
    if tensor.size == 0:
        raise ValueError(
            f"expected {name_of(variable)} to have at least one element, received shape"
            f" {tensor.shape}"
        )
    return tensor


def _short_name(variable: Any) -> str:
    name = getattr(variable, "name", None)
    return name if isinstance(name, str) and name else "shared variable"


@functools.cache
def _synchronized_class(framework_class: Any) -> Any:
    """Return the subclass of a framework's class of shared variables that adds `mv_sync`.

    An existing object can change its class to the subclass: the framework's class comes first and
    no slots are added, so that the objects of both classes have the same layout.
    """

    class Synchronized(framework_class, MVSharedVariable):  # type: ignore[misc]
        __slots__ = ()
        __doc__ = MVSharedVariable.__doc__

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Python also calls this method on a result of MVSharedVariable(), which is initialized
            # already, unlike an object that the framework creates from the class, as in clone().
            if "container" not in self.__dict__:
                super().__init__(*args, **kwargs)

        def clone(self, *args: Any, **kwargs: Any) -> Any:
            """Return the framework's clone, which shares the value and the table."""
            copy = super().clone(*args, **kwargs)
            copy._mv_link = self._mv_link
            return copy

        def __copy__(self) -> Any:
            copy = type(self).__new__(type(self))
            copy.__dict__.update(self.__dict__)
            return copy

        def __reduce_ex__(self, protocol: Any) -> Any:
            # The table is not pickled. The class has no importable name, so unpickling creates it
            # from the framework's class. Protocols 0 and 1 would call its __init__.
            reduced = super().__reduce_ex__(max(protocol, 2))
            state = {name: value for name, value in reduced[2].items() if name != "_mv_link"}
            return (_blank, (framework_class,), state, *reduced[3:])

    Synchronized.__name__ = Synchronized.__qualname__ = f"MV{framework_class.__name__}"
    return Synchronized


def _blank(framework_class: Any) -> Any:
    """Return a variable without attributes, for pickle to fill; pickles contain this name."""
    variable_class = _synchronized_class(framework_class)
    return variable_class.__new__(variable_class)
