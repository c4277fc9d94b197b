"""The builders that make a model on each rank: from Python, from JSON, or from a .keras file."""

import json
import os
import re
from typing import Any, Final

from multiverso.learn._input import InputError, as_input_error, read_text

__all__ = ["ModelBuilder", "ModelFromJson", "ModelFromKeras"]

#: The layers whose options, under the same names, have the same meaning in Keras 2 and 3.
_LAYERS: Final = {
    *("Activation", "BatchNormalization", "Dense", "Dropout", "Embedding", "Flatten"),
    *("GaussianDropout", "GaussianNoise", "InputLayer", "Permute", "RepeatVector", "Reshape"),
    *("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract"),
    *("ELU", "LeakyReLU", "PReLU", "ReLU", "Softmax"),
    *(
        f"{kind}{dimensions}D"
        for kind in (
            *("AveragePooling", "Conv", "GlobalAveragePooling", "GlobalMaxPooling", "MaxPooling"),
            *("UpSampling", "ZeroPadding"),
        )
        for dimensions in (1, 2, 3)
    ),
}

#: The classes of whole models, by their name in Keras 2.
_MODELS: Final = {"Functional": "Model", "Model": "Model", "Sequential": "Sequential"}


class ModelBuilder:
    """Makes the model. Override `build_model`.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, kept as an attribute for builders that depend on the rank.

    Examples
    --------
    >>> from multiverso.learn import ModelBuilder
    >>> class Line(ModelBuilder):
    ...     def build_model(self):
    ...         import keras
    ...
    ...         return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

    """

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm

    def build_model(self) -> Any:
        """Return a new Keras model. The weights of the model on the master are used.

        The master and every worker call it once; a single rank, which is both, calls it twice.

        Raises
        ------
        NotImplementedError
            If a subclass does not override this method.

        """
        raise NotImplementedError(f"{type(self).__name__}: expected build_model() to be overridden")


class ModelFromJson(ModelBuilder):
    """Makes a model from JSON, as ``model.to_json()`` writes it in Keras 3, or in Keras 2.

    In JSON of Keras 2, only layers that mean the same in both are allowed.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        As in `ModelBuilder`. A path given here is used as `filename`.
    filename : path, optional
        The JSON file.
    json_str : str, optional
        The JSON itself, instead of a file.
    custom_objects : dict, optional
        Classes and functions that the JSON names and Keras does not know.
    weights : path, optional
        A file to load the weights from, as ``model.save_weights()`` writes it.

    Notes
    -----
    Keras' safe mode is on: JSON that contains code, as of a Lambda layer, is rejected.

    Examples
    --------
    >>> import keras
    >>> from multiverso.learn import ModelFromJson
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> ModelFromJson(json_str=model.to_json()).build_model().count_params()
    2

    """

    def __init__(
        self,
        comm: Any = None,
        filename: str | os.PathLike[str] | None = None,
        json_str: str | None = None,
        custom_objects: dict[str, Any] | None = None,
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(comm, str | os.PathLike) and filename is None:
            comm, filename = None, comm
        super().__init__(comm)
        if (filename is None) == (json_str is None):
            raise InputError("expected either filename or json_str, received both or neither")
        self.filename = filename
        self.json_str = json_str
        self.custom_objects = custom_objects
        self.weights = weights

    def build_model(self) -> Any:
        """Return the model.

        Raises
        ------
        InputError
            If the file cannot be read, is not JSON, or does not describe a model.

        """
        import keras

        text = self.json_str or "" if self.filename is None else read_text(self.filename)
        source = "json_str" if self.filename is None else str(self.filename)
        problem = f"cannot make a model of {source}"
        with as_input_error(problem):
            text, old_version = _translated(text)
        if old_version is not None:
            problem += f": {_refusal(old_version, ' that cannot be translated')}"
        # Keras raises errors of many types for invalid input.
        with as_input_error(problem):
            model = keras.models.model_from_json(text, custom_objects=self.custom_objects)
            if not isinstance(model, keras.Model):
                raise TypeError(f"it describes a {type(model).__name__}")
        if self.weights is not None:
            with as_input_error(f"cannot load the weights {self.weights}"):
                model.load_weights(self.weights)
        return model


class ModelFromKeras(ModelBuilder):
    """Loads a model and its weights from a ``.keras`` file, with Keras' safe mode.

    Parameters
    ----------
    filename : path
        The file, as ``model.save()`` writes it.
    custom_objects : dict, optional
        Classes and functions that the file names and Keras does not know.

    Examples
    --------
    >>> import keras, tempfile
    >>> from multiverso.learn import ModelFromKeras
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/line.keras")
    ...     ModelFromKeras(folder + "/line.keras").build_model().count_params()
    2

    """

    def __init__(
        self, filename: str | os.PathLike[str], custom_objects: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.filename = filename
        self.custom_objects = custom_objects

    def build_model(self) -> Any:
        """Return the model; raise InputError if the file contains no model, or contains code."""
        import keras

        with as_input_error(f"cannot load a model from {self.filename}"):
            return keras.models.load_model(
                self.filename, custom_objects=self.custom_objects, compile=False, safe_mode=True
            )


def _translated(text: str) -> tuple[str, str | None]:
    """Return the JSON of a model for Keras 3, and the version of Keras 2 that has written it.

    If Keras 3 has written it, it is unchanged, and the version is None. Keras 1 and layers that
    mean something else in Keras 3, such as Lambda, are errors.
    """
    model = json.loads(text)
    if not isinstance(model, dict) or "module" in model or model.get("class_name") not in _MODELS:
        return text, None
    # The file may come from a stranger, so only a short part of it, in one line, is shown.
    found = re.match(r"\d[\w.+-]{0,19}", str(model.get("keras_version")))
    version = found[0] if found else "1 or 2"
    if version[0] not in "12":
        return text, None
    if not version.startswith("2."):
        raise InputError(_refusal(version, ""))
    _translate(model, version)
    return json.dumps(model), version


def _refusal(version: str, problem: str) -> str:
    """Return the message about a model of an older Keras; `problem` follows the version."""
    return (
        f"expected a model of Keras 3, received one of Keras {version}{problem}; "
        "build it with Keras 3 and write it again with model.to_json()"
    )


def _translate(model: dict[str, Any], version: str) -> None:
    """Translate a model of Keras 2 in place; raise InputError if it is impossible."""
    config = model["config"]
    if isinstance(config, list):  # The model is a Sequential of Keras 2.2.2 or before.
        config = {"name": "sequential", "layers": config}
    layers = config["layers"]
    if model["class_name"] == "Sequential" and layers[0]["class_name"] != "InputLayer":
        shape = layers[0]["config"].get("batch_input_shape")
        if shape is not None:
            layers.insert(0, {"class_name": "InputLayer", "config": {"batch_input_shape": shape}})
    for layer in layers:
        kind, options = layer["class_name"], layer["config"]
        if kind not in _LAYERS:
            raise InputError(_refusal(version, f" with a layer {str(kind)!r:.40}"))
        activation = options.get("activation")
        # The slope of hard_sigmoid has changed. An object has more options than a name.
        if activation == "hard_sigmoid" or isinstance(activation, dict):
            raise InputError(_refusal(version, f" with the activation {activation!r:.40}"))
        shape = options.pop("batch_input_shape", None)
        if kind == "InputLayer":
            names = ("name", "dtype", "sparse")
            options = {name: options[name] for name in names if name in options}
            options["batch_shape"] = shape
        options.pop("input_length", None)  # Embedding no longer needs it.
        if kind == "BatchNormalization" and isinstance(options["axis"], list):
            (options["axis"],) = options["axis"]
        layer.update(module="keras.layers", registered_name=None, config=options)
    name = _MODELS[model["class_name"]]
    model.update(class_name=name, module="keras", registered_name=None, config=config)
