"""The progress bar of the master, which is silent where there is no terminal."""

import logging
import time

from tqdm import tqdm

__all__ = ["Progress"]

_log = logging.getLogger("multiverso")


class Progress:
    """Shows one bar for each epoch: samples, loss and metrics, samples per second, workers alive.

    Parameters
    ----------
    epochs : range
        The epochs to come.
    samples : int or None
        How many there are in an epoch, if that is known.

    """

    def __init__(self, epochs: range, samples: int | None) -> None:
        self._epochs = epochs
        self._samples = samples
        self._bar: tqdm | None = None
        self._next = epochs.start
        self._start = time.monotonic()

    def update(self, samples: int, metrics: dict[str, float], alive: int) -> None:
        """Show that so many samples more have been seen."""
        if self._bar is None:
            self._bar = tqdm(
                total=self._samples,
                desc=f"epoch {self._next + 1}/{self._epochs.stop}",
                unit=" samples",
                disable=None,  # silent where standard error is no terminal
            )
        self._bar.set_postfix({**_rounded(metrics), "workers": alive}, refresh=False)
        self._bar.update(samples)

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        """Show the metrics of an epoch that is over."""
        shown = " ".join(f"{name} {value}" for name, value in _rounded(logs).items())
        seconds = time.monotonic() - self._start
        _log.info("epoch %d/%d, %.1f s: %s", epoch + 1, self._epochs.stop, seconds, shown)
        if self._bar is not None:
            self._bar.set_postfix(_rounded(logs))
        self.close()
        self._next = epoch + 1

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _rounded(metrics: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in metrics.items()}
