"""Synchronizes the parameters of a Lasagne network between all workers."""

import warnings
from typing import Any

from multiverso._extras import LASAGNE, needs
from multiverso.api import current_session
from multiverso.sync._movable import grouped
from multiverso.sync._param_manager import ParamManager
from multiverso.sync._shares import Shares, SyncStatistics, share_of_parameter
from multiverso.sync._tensor import Tensors
from multiverso.sync._tensor_sync import failing_on_all_ranks
from multiverso.theano_ext._tensors import SharedGroup, SharedTensor, name_of

__all__ = ["LasagneParamManager", "MVNetParamManager"]


class LasagneParamManager(ParamManager):
    """Synchronizes a network that each worker trains, through tables.

    The constructor is collective: ranks pass networks of the same architecture. When it returns,
    the networks of all workers have the master's values.

    Parameters
    ----------
    network : lasagne.layers.Layer or list of them
        The output layer, or several. All parameters of these layers and of the layers below are
        synchronized. They are shared variables: float32 and float64 are updated in place, float16
        is summed in float32. Nothing else in the network changes, so saving and pickling it work
        as before.
    sync_non_trainable : {"average", "master", False}, optional
        How parameters without the tag ``trainable``, such as batch-normalization statistics, are
        synchronized. "average", the default, averages the workers' deltas; integers are taken from
        the master. "master" takes all of them from the master. With False, each worker keeps its
        own from the start, as always for other dtypes.
    overlap, average : bool, optional
        As for `multiverso.sync.ParamSync`.

    Raises
    ------
    ImportError
        If Lasagne cannot be imported; see `multiverso.lasagne_ext.old_names`.
    TypeError, ValueError
        If `network` is not a layer, has no parameters, or has one whose dtype no table can hold or
        which has its own table (`multiverso.theano_ext.sharedvar`).
    MismatchError, MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.sync.ParamSync`.

    Examples
    --------
    >>> from multiverso.lasagne_ext import old_names
    >>> old_names.supply()
    >>> import lasagne
    >>> import multiverso as mv
    >>> from multiverso.lasagne_ext.param_manager import LasagneParamManager
    >>> with mv.session():
    ...     network = lasagne.layers.DenseLayer(lasagne.layers.InputLayer((None, 3)), 2)
    ...     manager = LasagneParamManager(network)
    ...     manager.sync()  # after each batch

    """

    def __init__(
        self,
        network: Any,
        *,
        sync_non_trainable: SyncStatistics = "average",
        overlap: bool = False,
        average: bool = False,
    ) -> None:
        super().__init__(
            lambda: _tensors_of(network, sync_non_trainable, average),
            "network",
            overlap=overlap,
            average=average,
        )
        self.network = network

    def update_all_param(self) -> None:
        """Call `sync`, of which this is the former name.

        .. deprecated:: 0.2
            Use `sync`.
        """
        warnings.warn(
            "update_all_param is the former name of sync",
            DeprecationWarning,
            stacklevel=2,
        )
        self.sync()


class MVNetParamManager(LasagneParamManager):
    """`LasagneParamManager` under its former name.

    .. deprecated:: 0.2
        Use `LasagneParamManager`.

    Parameters
    ----------
    network, average : optional
        As for `LasagneParamManager`.
    is_master_worker : bool, optional
        The result of `multiverso.is_master_worker`, not the function: whether all workers start
        from this worker's values.

    Examples
    --------
    >>> from multiverso.lasagne_ext import old_names
    >>> old_names.supply()
    >>> import lasagne
    >>> import multiverso as mv
    >>> from multiverso.lasagne_ext.param_manager import MVNetParamManager
    >>> with mv.session():
    ...     network = lasagne.layers.DenseLayer(lasagne.layers.InputLayer((None, 3)), 2)
    ...     MVNetParamManager(network).sync_all_param()

    """

    def __init__(
        self, network: Any, is_master_worker: bool | None = None, *, average: bool = False
    ) -> None:
        warnings.warn(
            "MVNetParamManager is the former name of LasagneParamManager",
            DeprecationWarning,
            stacklevel=2,
        )
        expected = current_session().worker_id == 0
        with failing_on_all_ranks():
            is_function = callable(is_master_worker)  # It is true on every worker.
            if is_function or is_master_worker not in (None, expected):
                msg = (
                    f"is_master_worker: expected {expected}, the result of"
                    f" mv.is_master_worker(), received {is_master_worker!r}"
                )
                raise TypeError(msg) if is_function else ValueError(msg)
        super().__init__(network, average=average)


def _tensors_of(network: Any, sync_non_trainable: object, average: bool) -> Tensors:
    shares = Shares(sync_non_trainable, "sync_non_trainable", average)
    # The import is here, so that importing this module does not need Lasagne.
    with needs("LasagneParamManager", **LASAGNE):
        import lasagne

    layers = list(network) if isinstance(network, list | tuple) else [network]
    for layer in layers:
        if not isinstance(layer, lasagne.layers.Layer):
            msg = f"network: expected a layer of Lasagne, received {type(layer).__name__}"
            raise TypeError(msg)
    variables = lasagne.layers.get_all_params(layers)
    if not variables:
        raise ValueError("network: expected parameters, received layers without any")
    for variable in variables:
        link = getattr(variable, "_mv_link", None)
        if link is not None and link.is_live():
            raise ValueError(
                f"network: expected no variable with a table, received {name_of(variable)}, whose "
                "delta would be added twice"
            )
    trainable = set(lasagne.layers.get_all_params(layers, trainable=True))
    tensors: list[SharedTensor] = []
    for variable in variables:
        if variable in trainable:
            share_of_gradients = share_of_parameter(variable.dtype, average)
            tensors.append(SharedTensor(variable, share_of_gradients))
        elif (share := shares.of(variable.dtype)) is not None:
            tensors.append(SharedTensor(variable, share))
    all_layers = lasagne.layers.get_all_layers(layers)

    def parts() -> list[Any]:
        return [part for each in all_layers for part in (*each.params, *_inputs_of(each))]

    def names_of() -> dict[Any, str]:
        return {variable: name_of(variable) for variable in lasagne.layers.get_all_params(layers)}

    return Tensors(grouped(tensors, SharedGroup), parts, names_of, "network")


def _inputs_of(layer: Any) -> list[Any]:
    """Return the layers below a layer of Lasagne."""
    return getattr(layer, "input_layers", None) or [getattr(layer, "input_layer", None)]
