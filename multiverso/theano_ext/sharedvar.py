"""Shared variables of PyTensor, Theano and Aesara that all workers train together.

Each worker has its own copy of a variable and trains it as usual. `mv_sync` sends what the copy
has gained since the last time to a table, and brings back what all workers have gained::

    from multiverso.theano_ext import sharedvar

    W = sharedvar.mv_shared(np.zeros((784, 10), "float32"), name="W", borrow=True)
    train = pytensor.function([x, y], cost, updates=[(W, W - 0.1 * pytensor.grad(cost, W))])
    for batch in batches:
        train(*batch)
        sharedvar.sync_all_mv_shared_vars()

Which framework
    The one that the program has imported. If it has imported several of them, or none, the first
    of PyTensor, Aesara and Theano that is imported, or that can be.

What the variables are
    `mv_shared` returns the framework's own shared variable; only its class is another one, a
    subclass that adds `mv_sync`. It can be used wherever a shared variable can.

    A clone and a shallow copy share the value with the original, hence also the table:
    synchronising one synchronises the other.

    A pickle and a deep copy have a value of their own and no table. They are shared variables
    like any other; `mv_sync` raises StateError until ``MVSharedVariable(variable)``, called by
    all ranks, gives them one.

    A variable belongs to the session in which it was attached. Afterwards it is like one from a
    pickle, and `sync_all_mv_shared_vars` passes over it. Until then it is kept and synchronised
    even where the program has dropped it, so that all ranks always synchronise the same ones.
"""

import functools
from typing import Any

import multiverso as mv
from multiverso.api import current_session
from multiverso.sync._tensor_sync import TensorSync, taking_part
from multiverso.theano_ext._backend import choose_backend
from multiverso.theano_ext._tensors import SharedTensor, name_of

__all__ = ["MVSharedVariable", "mv_shared", "sync_all_mv_shared_vars"]


class _Link:
    """Ties the value of a shared variable to a table of the present session.

    Collective: creates the table with the master's value, and on every worker sets the variable
    to it.
    """

    def __init__(self, variable: Any) -> None:
        self._session = current_session()
        self._sync = TensorSync(lambda: [_tensor_of(variable)], _short_name(variable))

    def is_live(self) -> bool:
        """Tell whether the session in which the variable was attached is still open."""
        return not self._session.closed

    def sync(self) -> None:
        """Add what the variable has gained to the table, and set both to the sum."""
        self._sync.sync()


class MVSharedVariable:
    """A shared variable that is synchronised through a table.

    ``MVSharedVariable(svobj)`` attaches an existing shared variable of PyTensor, Theano or Aesara
    to a new table of its size and returns it: the same object, so that graphs and functions that
    use it stay valid. Collective: it blocks until all ranks have called it for the same variable.
    The master's value is set on all workers. A variable that has a table already keeps it.

    Parameters
    ----------
    svobj : shared variable
        Of any shape with at least one element, of float16 (its table is float32), float32,
        float64, int32 or int64. Its shape is final.

    Raises
    ------
    StateError
        Before `multiverso.init` or after `multiverso.shutdown`.
    TypeError
        `svobj` is no shared variable, or its value is no dense array of one of these dtypes.
    ValueError
        Its value has no element.
    MismatchError
        The ranks' variables differ in shape or in the dtype of their tables.
    """

    __slots__ = ()  # see _synchronised_class
    _mv_link: _Link | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Attach `svobj` and return it, or make a variable of a class with `mv_sync`."""
        if cls is MVSharedVariable:
            return _attach(*args, **kwargs)
        return super().__new__(cls)

    def mv_sync(self) -> None:
        """Add the gain since the last synchronisation to the table and read the sum back.

        The value is ``table + (value - last value)`` afterwards, in the table and here. Functions
        that use the variable see it at once. It is one pass over the memory, in which nothing of
        its size is allocated, but for float16. It waits for other workers where the mode does: in
        sync mode all workers call it equally often, and end with the same bits.

        After an interrupted call the next one does the rest, and nothing is lost or added twice;
        not so in sync mode and on several nodes, see `multiverso.sync.ParamSync.sync`.

        Raises
        ------
        StateError
            There is no session, or the variable does not belong to it: it comes from a pickle, a
            deep copy or an earlier session. Or this rank is no worker, has called
            `multiverso.finish`, or an earlier call was interrupted where that cannot be mended.
        ValueError
            The shape of the value has changed since the variable was attached.
        OperationTimeout, PeerLostError, AbortedError
            It has to wait for a worker that does not come. The message names it.
        """
        current_session()
        link = self._mv_link
        if link is None:
            raise mv.StateError(
                f"{name_of(self)} has no table, it comes from a pickle or a deep copy;"
                " MVSharedVariable(variable), called by all ranks, gives it one"
            )
        if not link.is_live():
            raise mv.StateError(
                f"{name_of(self)} belongs to a session that has been shut down;"
                " MVSharedVariable(variable), called by all ranks, attaches it to the present one"
            )
        link.sync()


def mv_shared(
    value: Any,
    name: str | None = None,
    strict: bool = False,
    allow_downcast: Any = None,
    **kwargs: Any,
) -> Any:
    """Make a shared variable that all workers train together.

    Collective: it blocks until all ranks have called it for the same variable. The master's value
    is set on all workers.

    Parameters
    ----------
    value, name, strict, allow_downcast, **kwargs
        As for the ``shared`` of the framework, `borrow` among them. `value` is an array of any
        shape with at least one element, or a scalar; see `MVSharedVariable` for the dtypes. The
        other workers' values count only for their shape and dtype.

    Returns
    -------
    shared variable
        The framework's, with `MVSharedVariable.mv_sync`.

    Raises
    ------
    ImportError
        None of PyTensor, Aesara and Theano can be imported.
    StateError, TypeError, ValueError, MismatchError
        As for `MVSharedVariable`.
    """
    current_session()
    with taking_part():
        variable = choose_backend().shared(
            value, name=name, strict=strict, allow_downcast=allow_downcast, **kwargs
        )
    return _attach(variable)


def sync_all_mv_shared_vars() -> None:
    """Synchronise all variables of the present session, in the order they were attached.

    Raises
    ------
    StateError
        Before `multiverso.init` or after `multiverso.shutdown`, or this rank is no worker.
    ValueError
        The shape of a variable has changed; those before it have been synchronised.
    OperationTimeout, PeerLostError, AbortedError
        As for `MVSharedVariable.mv_sync`.
    """
    for link in current_session().companions.get(__name__, []):
        link.sync()


def _attach(svobj: Any) -> Any:
    """Give a shared variable a table of the present session, see `MVSharedVariable`."""
    current_session()
    link = getattr(svobj, "_mv_link", None)
    if link is not None and link.is_live():
        return svobj
    link = _Link(svobj)
    if not isinstance(svobj, MVSharedVariable):
        framework_class: Any = type(svobj)
        svobj.__class__ = _synchronised_class(framework_class)
    svobj._mv_link = link
    current_session().companions.setdefault(__name__, []).append(link)
    return svobj


def _tensor_of(variable: Any) -> SharedTensor:
    tensor = SharedTensor(variable)
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
def _synchronised_class(framework_class: Any) -> Any:
    """Return the subclass of a framework's class of shared variables that adds `mv_sync`.

    An existing object can change to it because the framework's class comes first and no attributes
    are added, so that their objects are laid out alike.
    """

    class Synchronised(framework_class, MVSharedVariable):  # type: ignore[misc]
        __slots__ = ()
        __doc__ = MVSharedVariable.__doc__

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Python calls this on whatever MVSharedVariable() returned, which is complete; what
            # the framework makes from its original's class, as clone() does, is not.
            if "container" not in self.__dict__:
                super().__init__(*args, **kwargs)

        def clone(self, *args: Any, **kwargs: Any) -> Any:
            """Return a clone as the framework makes it, which shares the value and the table."""
            twin = super().clone(*args, **kwargs)
            twin._mv_link = self._mv_link
            return twin

        def __copy__(self) -> Any:
            twin = type(self).__new__(type(self))
            twin.__dict__.update(self.__dict__)
            return twin

        def __reduce_ex__(self, protocol: Any) -> Any:
            # What the framework pickles, less the table. The class has no importable name: it is
            # made again from the framework's. Protocols 0 and 1 would need its __init__.
            reduced = super().__reduce_ex__(max(protocol, 2))
            state = {name: value for name, value in reduced[2].items() if name != "_mv_link"}
            return (_blank, (framework_class,), state, *reduced[3:])

    Synchronised.__name__ = Synchronised.__qualname__ = f"MV{framework_class.__name__}"
    return Synchronised


def _blank(framework_class: Any) -> Any:
    """Return a variable without attributes, for pickle to fill."""
    variable_class = _synchronised_class(framework_class)
    return variable_class.__new__(variable_class)
