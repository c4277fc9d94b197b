"""The former location of `multiverso.keras_ext.param_manager`."""

from multiverso.keras_ext.param_manager import KerasParamManager

__all__ = ["KerasParamManager"]
