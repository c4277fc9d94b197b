"""Batch normalisation for Lasagne 0.1, which has no layer of that kind.

Source: S. Ioffe and C. Szegedy, Batch Normalization: Accelerating Deep Network Training by Reducing
Internal Covariate Shift, 2015, algorithms 1 and 2.
"""

from lasagne_backend import T, lasagne, theano


class BatchNormLayer(lasagne.layers.Layer):
    """Gives each channel mean 0 and variance 1 over a batch, then a scale and a shift it learns.

    With ``deterministic=True`` it takes the mean and the variance of what it has seen in training
    in place of the batch's own. Those are parameters without the tag ``trainable``; after each
    batch they come closer to its own, see `updates_of`.

    Parameters
    ----------
    incoming : lasagne.layers.Layer
        Whose outputs have the shape (images, channels, ...).
    alpha : float
        How far the statistics go towards those of a batch, 0 to 1.
    epsilon : float
        What is added to a variance, lest it is zero.
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
        self.seen = None

    def get_output_for(self, input, deterministic=False, **kwargs):
        """Return the normalised input."""
        if deterministic:
            mean, variance = self.mean, self.variance
        else:
            mean, variance = input.mean(self.axes), input.var(self.axes)
            self.seen = (mean, variance)
        pattern = ["x", 0] + ["x"] * (len(self.input_shape) - 2)
        scale = self.gamma / T.sqrt(variance + self.epsilon)
        shift = self.beta - mean * scale
        return input * scale.dimshuffle(*pattern) + shift.dimshuffle(*pattern)


def updates_of(network):
    """Return the updates of all statistics of a network, after ``get_output`` of it for training.

    Returns
    -------
    list of (shared variable, expression)
        For ``theano.function(..., updates=...)``, beside those of the optimiser.
    """
    updates = []
    for layer in lasagne.layers.get_all_layers(network):
        if isinstance(layer, BatchNormLayer):
            for kept, seen in zip((layer.mean, layer.variance), layer.seen, strict=True):
                alpha = T.constant(layer.alpha, dtype=theano.config.floatX)
                updates.append((kept, kept + alpha * (seen - kept)))
    return updates
