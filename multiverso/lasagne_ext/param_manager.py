"""Keep the parameters of a Lasagne network in step with those of all workers."""

import warnings
from typing import Any, Final, Literal

from multiverso._tensor_sync import Tensor, TensorSync, taking_part
from multiverso.api import current_session
from multiverso.tables import ArrayTableHandler
from multiverso.theano_ext._tensors import DTYPES, SharedTensor, name_of

__all__ = ["LasagneParamManager", "MVNetParamManager", "SyncNonTrainable"]

SyncNonTrainable = Literal["average", "master", False]

_CHOICES: Final = ("average", "master", False)


class LasagneParamManager:
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
        sync_non_trainable: SyncNonTrainable = "average",
        overlap: bool = False,
    ) -> None:
        session = current_session()
        is_master = session.worker_id == 0
        mean = 1.0 / session.num_workers
        self._sync = TensorSync(
            lambda: _tensors_of(network, sync_non_trainable, is_master, mean), "network", overlap
        )
        self.network = network

    @property
    def tables(self) -> tuple[ArrayTableHandler, ...]:
        """The tables: one for each dtype, in the order in which these come in the network."""
        return self._sync.tables

    def sync_all_param(self) -> None:
        """Add what this worker has learned since the last time, fetch what all have learned.

        Raises
        ------
        ValueError
            The shape of a parameter has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.sync`.

        """
        self._sync.sync()

    def wait(self) -> None:
        """With ``overlap=True``: wait for the last sync's exchange and take its result.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.wait`.

        """
        self._sync.wait()

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


def _tensors_of(
    network: Any, sync_non_trainable: object, is_master: bool, mean: float
) -> list[Tensor]:
    if sync_non_trainable is not False and sync_non_trainable not in ("average", "master"):
        msg = f"sync_non_trainable: expected one of {_CHOICES}, received {sync_non_trainable!r}"
        raise ValueError(msg)
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
    only_master = 1.0 if is_master else 0.0
    tensors: list[Tensor] = []
    for variable in variables:
        if variable in trainable:
            tensors.append(SharedTensor(variable))
        elif sync_non_trainable is not False and variable.dtype in DTYPES:
            is_mean = sync_non_trainable == "average" and variable.dtype.startswith("float")
            tensors.append(SharedTensor(variable, mean if is_mean else only_master))
    return tensors
