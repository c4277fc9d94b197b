"""Batch normalization for Lasagne 0.1, which has no such layer.

Source: S. Ioffe and C. Szegedy, Batch Normalization: Accelerating Deep Network Training by Reducing
Internal Covariate Shift, 2015, algorithms 1 and 2.
"""

from lasagne_backend import T, lasagne, theano


class BatchNormLayer(lasagne.layers.Layer):
    """Normalizes each channel over a batch, then applies a learned scale and shift.

    With ``deterministic=True`` it uses running averages of the mean and variance instead. They are
    parameters without the tag ``trainable``; `updates_of` returns their updates.

    Parameters
    ----------
    incoming : lasagne.layers.Layer
        A layer whose outputs have the shape (images, channels, ...).
    alpha : float
        Weight of a new batch in the running averages, from 0 to 1.
    epsilon : float
        Added to the variance for numerical stability.
    """

    def __init__(self, incoming, alpha=0.1, epsilon=1e-4, **kwargs):
        super().__init__(incoming, **kwargs)
        self.alpha, self.epsilon = alpha, epsilon
        self.axes = (0, *range(2, len(self.input_shape)))
        channels = (self.input_shape[1],)
        constant = lasagne.init.Constant
        self.gamma = self.add_param(constant(1), channels, name="gamma", regularizable=False)
        self.beta = self.add_param(constant(0), channels, name="beta", regularizable=False)
        kept = {"trainable": False, "regularizable": False}
        self.mean = self.add_param(constant(0), channels, name="mean", **kept)
        self.variance = self.add_param(constant(1), channels, name="variance", **kept)
        self.batch_statistics = None

    def get_output_for(self, input, deterministic=False, **kwargs):
        """Return the normalized input."""
        if deterministic:
            mean, variance = self.mean, self.variance
        else:
            mean, variance = input.mean(self.axes), input.var(self.axes)
            self.batch_statistics = (mean, variance)
        pattern = ["x", 0] + ["x"] * (len(self.input_shape) - 2)
        scale = self.gamma / T.sqrt(variance + self.epsilon)
        shift = self.beta - mean * scale
        return input * scale.dimshuffle(*pattern) + shift.dimshuffle(*pattern)


def updates_of(network):
    """Return the updates of the running averages; call it after ``get_output`` for training.

    Returns
    -------
    list of (shared variable, expression)
        Updates to pass to ``theano.function`` in addition to those of the optimizer.
    """
    updates = []
    for layer in lasagne.layers.get_all_layers(network):
        if isinstance(layer, BatchNormLayer):
            for running, batch in zip(
                (layer.mean, layer.variance), layer.batch_statistics, strict=True
            ):
                alpha = T.constant(layer.alpha, dtype=theano.config.floatX)
                updates.append((running, running + alpha * (batch - running)))
    return updates
