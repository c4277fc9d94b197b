"""The builders that make a model on each rank: from Python, from JSON, or from a .keras file."""

import os
from typing import Any

from multiverso.learn._input import InputError, as_input_error, read_text
from multiverso.learn._keras_2 import refusal, translated

__all__ = ["ModelBuilder", "ModelFromJson", "ModelFromKeras"]


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
        msg = f"{type(self).__name__}: expected build_model() to be overridden"
        raise NotImplementedError(msg)


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
            text, old_version = translated(text)
        if old_version is not None:
            problem += f": {refusal(old_version, ' that cannot be translated')}"
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
