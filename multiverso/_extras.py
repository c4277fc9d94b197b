"""Reports a missing optional package in one sentence, with the command that installs it."""

import contextlib
import importlib.util
import shlex
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

#: The exit code after `MissingExtraError`, which is also that of invalid arguments.
EXIT_CODE = 2

#: What to do if Keras does not find its backend, for `needs`. The preferred backend is the first.
BACKENDS = {
    name: f"pip install {name}, or set KERAS_BACKEND to an installed backend"
    for name in ("torch", "jax", "tensorflow")
}

#: The extra with the packages that Lasagne needs, for `needs`.
LASAGNE = dict.fromkeys(("lasagne", "theano"), "lasagne")

#: The extra with the packages that `multiverso.learn` needs for training.
LEARN = dict.fromkeys(("h5py", "keras", "tqdm"), "learn")


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, as no index has this project."""
    import importlib.metadata  # Its import takes longer than that of this package.

    try:
        requirements = importlib.metadata.requires("multiverso") or []
    except importlib.metadata.PackageNotFoundError:  # The package is used from its folder.
        requirements = []
    parts = [requirement.replace("'", '"').partition(";") for requirement in requirements]
    packages = [name.strip() for name, _, marker in parts if f'extra == "{extra}"' in marker]
    if not packages:
        return f"pip install '.[{extra}]' in the folder of Multiverso"
    return f"pip install {shlex.join(packages)}"


class MissingExtraError(ModuleNotFoundError):
    """A package is missing. Python prints what needs it and how to get it, without a traceback."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message, name=name)
        if not isinstance(sys.excepthook, _Hook):
            sys.excepthook = _Hook()


class _Hook:
    """The hook for uncaught exceptions; it passes other exceptions on to the hook before it."""

    def __init__(self) -> None:
        self.previous = sys.excepthook

    def __call__(
        self, kind: type[BaseException], error: BaseException, frames: TracebackType | None
    ) -> None:
        if not isinstance(error, MissingExtraError):
            self.previous(kind, error, frames)
            return
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_CODE)


def has_plain_hook(hook: Callable[..., object]) -> bool:
    """Return whether a hook for uncaught exceptions is Python's, rather than the program's own."""
    return (hook.previous if isinstance(hook, _Hook) else hook) is sys.__excepthook__


@contextlib.contextmanager
def needs(purpose: str, **advice: str) -> Iterator[None]:
    """Turn the failed import of a missing module into a MissingExtraError.

    The `purpose` needs the modules. `advice` has the extra with each of them, or what to do.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in advice:
            raise
        what = advice[error.name]
        what = what if " " in what else install_command(what)
        text = f"{purpose} needs {error.name}, which is not installed: {what}"
        raise MissingExtraError(text, error.name) from None


def require(purpose: str, **advice: str) -> None:
    """Raise MissingExtraError, as in `needs`, if a module is missing; import no module."""
    with needs(purpose, **advice):
        for name in advice:
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(name=name)


def has_module(name: str) -> bool:
    """Return whether a module can be found, which imports the packages that contain it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # A package in the name is missing, or the name is empty.
        return False
