"""The former location of `multiverso.keras_ext`."""
