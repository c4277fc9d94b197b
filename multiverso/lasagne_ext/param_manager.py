"""Keep the parameters of a Lasagne network in step with those of all workers."""

import warnings
from typing import Any

from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.api import current_session
from multiverso.sync._movable import grouped
from multiverso.sync._param_manager import ParamManager, Shares, SyncStatistics
from multiverso.sync._tensor import Tensor
from multiverso.sync._tensor_sync import taking_part
from multiverso.theano_ext._tensors import SharedGroup, SharedTensor, name_of

__all__ = ["LasagneParamManager", "MVNetParamManager"]


class LasagneParamManager(ParamManager):
    """A network that each worker trains, and that is synchronised through tables.

    Making one is collective: all ranks make it of the same architecture. When it returns, the
    networks of all workers have the master's values.

    Parameters
    ----------
    network : lasagne.layers.Layer or list of them
        The output layer, or several. All parameters of the layers below are kept in step, which
        are shared variables of float32 or float64, worked on in place, or of float16, summed up in
        float32. The network is not changed otherwise, so saving and pickling it work as before.
    sync_non_trainable : {"average", "master", False}, optional
        What becomes of parameters without the tag ``trainable``, such as the statistics of batch
        normalisation. "average", the default: all have the mean of what the workers have gathered;
        integers are the master's. "master": all have the master's. False: each worker keeps its
        own, from the start. Those of other dtypes are always each worker's own.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.

    Attributes
    ----------
    network : lasagne.layers.Layer or list of them
        As given.

    Raises
    ------
    ImportError
        Lasagne cannot be imported; see `multiverso.lasagne_ext.old_names`.
    TypeError
        `network` is no layer, or a trainable parameter is of a dtype that no table can hold.
    ValueError
        The network has no parameters, or one of them syncs by itself, see
        `multiverso.theano_ext.sharedvar`; or `sync_non_trainable` is something else.
    MismatchError
        Another rank's network differs in number, shape or dtype of its parameters.
    MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.ArrayTableHandler`.

    """

    def __init__(
        self,
        network: Any,
        *,
        sync_non_trainable: SyncStatistics = "average",
        overlap: bool = False,
    ) -> None:
        super().__init__(lambda: _tensors_of(network, sync_non_trainable), "network", overlap)
        self.network = network

    def update_all_param(self) -> None:
        """Do what `sync_all_param` does, under its former name.

        .. deprecated:: 0.2
            Use `sync_all_param`.
        """
        warnings.warn(
            "update_all_param is the former name of sync_all_param",
            DeprecationWarning,
            stacklevel=2,
        )
        self.sync_all_param()


class MVNetParamManager(LasagneParamManager):
    """`LasagneParamManager` under its former name.

    .. deprecated:: 0.2
        Use `LasagneParamManager`.

    Parameters
    ----------
    network : lasagne.layers.Layer or list of them
        As for `LasagneParamManager`.
    is_master_worker : bool, optional
        Whether this worker's values are the ones to start from. That is always so for the worker
        for which `multiverso.is_master_worker` says it.

    Raises
    ------
    ValueError
        `is_master_worker` says something else.

    """

    def __init__(self, network: Any, is_master_worker: bool | None = None) -> None:
        warnings.warn(
            "MVNetParamManager is the former name of LasagneParamManager",
            DeprecationWarning,
            stacklevel=2,
        )
        expected = current_session().worker_id == 0
        with taking_part():
            if is_master_worker is not None and bool(is_master_worker) != expected:
                msg = (
                    f"is_master_worker: expected what mv.is_master_worker() returns, {expected},"
                    f" received {is_master_worker!r}"
                )
                raise ValueError(msg)
        super().__init__(network)


def _tensors_of(network: Any, sync_non_trainable: object) -> list[Tensor]:
    shares = Shares(sync_non_trainable, "sync_non_trainable")
    # Not above: that this module can be imported does not depend on Lasagne.
    import lasagne

    layers = list(network) if isinstance(network, list | tuple) else [network]
    for layer in layers:
        if not isinstance(layer, lasagne.layers.Layer):
            msg = f"network: expected a layer of Lasagne, received {type(layer).__name__}"
            raise TypeError(msg)
    variables = lasagne.layers.get_all_params(layers)
    if not variables:
        msg = "network: expected parameters, received layers without any"
        raise ValueError(msg)
    for variable in variables:
        link = getattr(variable, "_mv_link", None)
        if link is not None and link.is_live():
            msg = (
                f"network: {name_of(variable)} has a table already, mv_sync keeps it in step; its "
                "gain would be added twice"
            )
            raise ValueError(msg)
    trainable = set(lasagne.layers.get_all_params(layers, trainable=True))
    tensors: list[SharedTensor] = []
    for variable in variables:
        if variable in trainable:
            tensors.append(SharedTensor(variable))
        elif shares.are_synced and variable.dtype in TABLE_DTYPES:
            share = shares.of(is_float=variable.dtype.startswith("float"))
            tensors.append(SharedTensor(variable, share))
    return grouped(tensors, SharedGroup)
