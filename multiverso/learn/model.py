"""How a rank makes its model: `ModelBuilder`, to be filled in, and `ModelFromJson`."""

import os
from pathlib import Path
from typing import Any

from multiverso.learn._errors import InputError, first_line

__all__ = ["ModelBuilder", "ModelFromJson", "ModelFromKeras"]


class ModelBuilder:
    """Makes the model to be trained. Override `build_model`.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        For a builder that wants to know on which rank it is; kept as an attribute.

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
        """Return a new Keras model; called once on every rank. The master's weights count.

        Raises
        ------
        NotImplementedError
            Here; a subclass overrides it.

        """
        msg = f"{type(self).__name__}: expected build_model() to be overridden"
        raise NotImplementedError(msg)


class ModelFromJson(ModelBuilder):
    """Makes the model that a JSON text describes, as ``model.to_json()`` writes it.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        As in `ModelBuilder`. A path given here is taken for `filename`.
    filename : path, optional
        A file with the text.
    json_str : str, optional
        The text itself, instead of a file.
    custom_objects : dict, optional
        Classes and functions that the text names and Keras does not know.
    weights : path, optional
        A file to load the weights from, as ``model.save_weights()`` writes it.

    Notes
    -----
    Keras' safe mode is on: a text that contains code, such as that of a Lambda layer, is refused.

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
            msg = "expected either filename or json_str of a model, received both or neither"
            raise InputError(msg)
        self.filename = filename
        self.json_str = json_str
        self.custom_objects = custom_objects
        self.weights = weights

    def build_model(self) -> Any:
        """Return the model.

        Raises
        ------
        InputError
            If the file cannot be read, is no JSON, or describes no model.

        """
        import keras

        text = self.json_str if self.filename is None else _read(Path(self.filename))
        what = "json_str" if self.filename is None else str(self.filename)
        try:
            model = keras.models.model_from_json(text, custom_objects=self.custom_objects)
            if not isinstance(model, keras.Model):
                msg = f"it describes a {type(model).__name__}"
                raise TypeError(msg)
        except Exception as error:  # whatever an arbitrary text may lead Keras to
            msg = f"cannot make a model of {what}: {first_line(error)}"
            raise InputError(msg) from error
        if self.weights is not None:
            try:
                model.load_weights(self.weights)
            except Exception as error:  # the same for an arbitrary file
                msg = f"cannot load the weights {self.weights}: {first_line(error)}"
                raise InputError(msg) from error
        return model


class ModelFromKeras(ModelBuilder):
    """Makes the model that is saved in a ``.keras`` file, with its weights; safe mode is on.

    Parameters
    ----------
    filename : path
        The file, as ``model.save()`` writes it.
    custom_objects : dict, optional
        Classes and functions that the file names and Keras does not know.

    """

    def __init__(
        self, filename: str | os.PathLike[str], custom_objects: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.filename = filename
        self.custom_objects = custom_objects

    def build_model(self) -> Any:
        """Return the model; InputError if the file holds none, or code."""
        import keras

        try:
            return keras.models.load_model(
                self.filename, custom_objects=self.custom_objects, compile=False, safe_mode=True
            )
        except Exception as error:  # whatever an arbitrary file may lead Keras to
            msg = f"cannot load a model from {self.filename}: {first_line(error)}"
            raise InputError(msg) from error


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        reason = "there is no such file" if not path.exists() else error.strerror
        raise InputError(f"cannot read {path}: {reason}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot make a model of {path}: it is no text") from error
