"""The former location of `multiverso.lasagne_ext`."""
