"""The former place of `multiverso.lasagne_ext`."""
