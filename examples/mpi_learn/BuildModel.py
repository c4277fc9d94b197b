#!/usr/bin/env python
"""Write a model of models/zoo.py to NAME_arch.json and NAME.weights.h5.

python BuildModel.py mnist
"""

import argparse
import sys
from pathlib import Path

from multiverso.learn import InputError, choose_backend
from multiverso.learn.command import Parser


def parse_arguments(names):
    """Return the command-line options."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_name", choices=names, help="name of the model")
    return parser.parse_args()


def main():
    """Build the model and write the files; return the exit code."""
    try:
        choose_backend()  # before Keras is imported
    except InputError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    from models.zoo import MODELS

    name = parse_arguments(sorted(MODELS)).model_name
    model = MODELS[name]()
    architecture, weights = Path(f"{name}_arch.json"), f"{name}.weights.h5"
    architecture.write_text(model.to_json() + "\n", "utf-8")
    model.save_weights(weights)
    print(f"wrote {architecture} and {weights}: {model.count_params()} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
