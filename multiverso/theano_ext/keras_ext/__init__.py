"""The former place of `multiverso.keras_ext`."""
