"""`ParamManager`, the base of the parameter managers of all adapters but JAX.

A manager provides the tensors of a model, which `ParamManager` syncs.
"""

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from multiverso._native.arguments import integer
from multiverso.sync._options import divided
from multiverso.sync._tensor import Tensor
from multiverso.sync._tensor_sync import TensorSync
from multiverso.tables import ArrayTable


def checked_freq(freq: object) -> int:
    """Return the steps between two syncs; raise ValueError unless `freq` is an int >= 1."""
    try:
        steps = 0 if isinstance(freq, bool) else operator.index(freq)  # type: ignore[arg-type]
    except TypeError:
        steps = 0
    if steps < 1:
        raise ValueError(f"freq: expected an int >= 1, received {freq!r}")
    return steps


class ParamManager:
    """Synchronizes a model that each worker trains, through tables.

    `make_tensors` returns the tensors; if it raises, other ranks get a `MismatchError`.
    """

    def __init__(
        self,
        make_tensors: Callable[[], Sequence[Tensor]],
        name: str | None,
        *,
        average: bool,
        **options: Any,
    ) -> None:
        self._sync = TensorSync(make_tensors, name, *divided({"average": average, **options}))
        self.average = average
        if not average and self._sync.num_workers > 1 and (kinds := self._projections()):
            msg = (
                f"{self._sync.name}: {kinds} move parameters into a range, a change that every "
                "worker makes: pass average=True, because the sum of the changes leaves the range"
            )
            warnings.warn(msg, stacklevel=3)

    def _projections(self) -> str:
        """Return the names of what sets parameters of the model without an optimizer, if any."""
        return ""

    @property
    def tables(self) -> tuple[ArrayTable, ...]:
        """The tables: one for each dtype, in the order of their first use in the model."""
        return self._sync.tables

    def is_live(self) -> bool:
        """Return whether the session in which the manager was made is still open."""
        return self._sync.is_live()

    def sync(self) -> None:
        """Add this worker's delta since the last sync, and fetch the values with all deltas.

        Raises
        ------
        ValueError, StateError, OperationTimeout, PeerLostError, AbortedError
            If a parameter has another shape or dtype, and as for `multiverso.sync.ParamSync.sync`.

        """
        self._sync.sync()
        self._sync.check_leaving()

    def sync_all_param(self) -> None:
        """Call `sync`, which has this name in Multiverso 2016."""
        self.sync()

    def step(self, steps: int = 1) -> None:
        """Count steps of training, and sync the fragments that are due.

        Parameters
        ----------
        steps : int, optional
            The number of steps since the last call. In `sync_every` steps, each of the `fragments`
            is due once.

        Raises
        ------
        TypeError, ValueError, StateError, OperationTimeout, PeerLostError, AbortedError
            If `steps` is not an integer of 0 or more, and as for `sync`.

        """
        self._sync.step(integer(steps, "steps", 0))

    def restart_steps(self) -> None:
        """Count the steps until the next sync from here."""
        self._sync.restart_steps()

    def wait(self) -> None:
        """Wait for the exchange of the last sync and apply its result, with ``overlap=True``.

        It raises the errors of [`ParamSync.wait`][multiverso.sync.ParamSync.wait].
        """
        self._sync.wait()
