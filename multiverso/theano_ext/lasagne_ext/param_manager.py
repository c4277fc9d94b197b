"""The former location of `multiverso.lasagne_ext.param_manager`."""

from multiverso.lasagne_ext.param_manager import LasagneParamManager, MVNetParamManager

__all__ = ["LasagneParamManager", "MVNetParamManager"]
