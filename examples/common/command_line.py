"""Option types and the final report, shared by the example programs."""

import json
import math
import sys


def positive(kind):
    """Return a converter for argparse that accepts only positive, finite numbers of `kind`."""

    def parse(text):
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError(text)
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def report(result, path, more=""):
    """Print one line about `result`; if `path` is given, also write it there as JSON.

    Return the exit code of the program. `more` is added to the line.
    """
    print(
        f"test error {result['test_error']:.2%}, {result['seconds']:.2f} seconds"
        f" (workers {result['workers']}, updates {result['updates']},"
        f" epochs {result['epochs']}{more})"
    )
    return write_json(result, path)


def write_json(result, path):
    """Write `result` to `path` unless it is None; return the exit code of the program."""
    try:
        if path is not None:
            path.write_text(json.dumps(result) + "\n")
    except OSError as error:
        print(f"error: cannot write {path}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
