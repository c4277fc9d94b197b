"""Small Keras models for images of digits, which BuildModel.py builds by name."""

from keras import Input, Sequential, layers


def mnist():
    """Return a convolutional network for 28 x 28 images of ten classes."""
    return Sequential(
        [
            Input((28, 28, 1)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.LayerNormalization(),  # lets plain SGD learn in three epochs
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ],
        name="mnist",
    )


def mnist_dense():
    """Return a network of two dense layers for 28 x 28 images of ten classes."""
    return Sequential(
        [
            Input((28, 28, 1)),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ],
        name="mnist_dense",
    )


MODELS = {"mnist": mnist, "mnist_dense": mnist_dense}
