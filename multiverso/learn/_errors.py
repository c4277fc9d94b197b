"""What is raised when the input of a training cannot be used."""

__all__ = ["InputError", "first_line"]


class InputError(ValueError):
    """A model, data, or an option cannot be used; the message is one sentence that says why.

    `MPIManager.train` raises it on all ranks, before training starts where it can be known by then.
    """


def first_line(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next(filter(None, lines), "") or type(error).__name__
