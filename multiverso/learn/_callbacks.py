"""The callbacks that options of the command line stand for."""

from typing import Any

import keras

__all__ = ["TargetMetric", "early_stopping"]


class TargetMetric(keras.callbacks.Callback):
    """Stops the training when a metric has reached a value.

    Parameters
    ----------
    metric : str
        Its name in the logs of an epoch.
    relation : {"<", ">"}
        Whether it is to be below or above.
    value : float
        The value to reach.

    """

    def __init__(self, metric: str, relation: str, value: float) -> None:
        super().__init__()
        self.metric = metric
        self.relation = relation
        self.value = value

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Stop if the value is reached."""
        seen = (logs or {}).get(self.metric)
        if seen is None:
            return
        if seen > self.value if self.relation == ">" else seen < self.value:
            self.model.stop_training = True


def early_stopping(metric: str, relation: str, epochs: int) -> Any:
    """Return Keras' callback that stops when a metric has not improved for so many epochs."""
    mode = "min" if relation == "<" else "max"
    return keras.callbacks.EarlyStopping(monitor=metric, mode=mode, patience=epochs)
