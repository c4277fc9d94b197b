"""Multiverso for programs written with Lasagne.

    from multiverso.lasagne_ext.param_manager import LasagneParamManager

    with mv.session():
        network = lasagne.layers.DenseLayer(...)
        manager = LasagneParamManager(network)
        for x, y in batches:  # this worker's part of them
            train(x, y)
            manager.sync()

Importing this package imports neither Lasagne nor Theano. With `multiverso.lasagne_ext.old_names`,
Lasagne 0.1 runs with later releases of NumPy and Theano.
"""
