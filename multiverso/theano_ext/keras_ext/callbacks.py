"""The former location of `multiverso.keras_ext.callbacks`."""

from multiverso.keras_ext.callbacks import MVCallback

__all__ = ["MVCallback"]
