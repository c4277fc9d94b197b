"""Multiverso for programs written with Keras 3, on JAX, PyTorch or TensorFlow.

    from multiverso.keras_ext import MVCallback, shard

    with mv.session():
        model = keras.Sequential([...])
        model.compile("adam", "mse")
        x, y = shard(x, y)  # this worker's part
        model.fit(x, y, epochs=10, callbacks=[MVCallback(model)])

`KerasParamManager` does the same in your own training loop. `multiverso.keras_ext.layers.Embedding`
has its weights in the rows of a table.
"""

from multiverso._extras import BACKENDS, needs

with needs("multiverso.keras_ext", keras="keras", **BACKENDS):
    from multiverso.keras_ext.callbacks import MVCallback
    from multiverso.keras_ext.data import shard
    from multiverso.keras_ext.param_manager import KerasParamManager

__all__ = ["KerasParamManager", "MVCallback", "shard"]
