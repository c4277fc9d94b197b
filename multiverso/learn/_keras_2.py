"""Translates the JSON of a model that Keras 2 has written to that of Keras 3."""

import json
import re
from typing import Any, Final

from multiverso.learn._input import InputError

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


def translated(text: str) -> tuple[str, str | None]:
    """Return the JSON of a model for Keras 3, and the version of Keras 2 that has written it.

    If Keras 3 has written it, it is unchanged, and the version is None. Raises InputError if Keras
    1 has written it, or if it contains something else than layers that mean the same in Keras 2
    and 3, such as a Lambda layer; ValueError, KeyError or TypeError if it is not a model's JSON.
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
        raise InputError(refusal(version, ""))
    _translate(model, version)
    return json.dumps(model), version


def refusal(version: str, problem: str) -> str:
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
            raise InputError(refusal(version, f" with a layer {str(kind)!r:.40}"))
        activation = options.get("activation")
        # The slope of hard_sigmoid has changed. An object has more options than a name.
        if activation == "hard_sigmoid" or isinstance(activation, dict):
            raise InputError(refusal(version, f" with the activation {activation!r:.40}"))
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
