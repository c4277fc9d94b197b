"""A recurrent network that learns to add: "12+39" in, "51" out, letter by letter, with Keras.

    python examples/keras/addition_rnn.py
    mpirun -np 4 python examples/keras/addition_rnn.py
    KERAS_BACKEND=torch mpirun -np 2 python examples/keras/addition_rnn.py --sync

One layer reads the question and ends in a state; another turns that state into the answer. It is
tested with sums that it has not seen, in neither order of the two numbers. Each worker trains on
its part of the questions, so that the number of samples seen does not depend on how many workers
there are. What makes it a parallel program is marked `MULTIVERSO`.

Sources: W. Zaremba and I. Sutskever, Learning to Execute, 2014, for the task; I. Sutskever, O.
Vinyals and Q. V. Le, Sequence to Sequence Learning with Neural Networks, 2014, for the network, and
for reading the question backwards, so that it ends near to where the answer begins.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from keras_backend import EpochBar, keras  # noqa: E402

# MULTIVERSO: the callback that keeps the models in step, and what cuts the data for the workers.
from multiverso.keras_ext import MVCallback, shard  # noqa: E402  # isort: skip

ALPHABET = "0123456789+ "  # the blank fills up what is shorter than the longest
CODES = {letter: code for code, letter in enumerate(ALPHABET)}
TENTH = 10  # one in so many pairs of numbers is for testing
SHOWN = 5  # questions at the end, with what the network answers


def draw_pairs(digits, samples, rng):
    """Return different pairs of numbers for training and for testing, in no order."""
    pairs = rng.integers(0, 10**digits, (samples, 2))
    pairs.sort(axis=1)  # a + b and b + a are one
    pairs = rng.permutation(np.unique(pairs, axis=0))
    cut = max(1, len(pairs) // TENTH)
    return pairs[cut:], pairs[:cut]


def encoded(texts):
    """Return the codes of texts of one length, int32 of shape (texts, letters)."""
    return np.array([[CODES[letter] for letter in text] for text in texts], np.int32)


def questions_of(pairs, digits):
    """Return questions and answers as codes; the questions are written backwards."""
    length = 2 * digits + 1
    questions = [f"{a}+{b}".ljust(length)[::-1] for a, b in pairs]
    answers = [f"{a + b}".ljust(digits + 1) for a, b in pairs]
    return encoded(questions), encoded(answers)


def one_hot(codes):
    """Return a vector for each letter that is one at its code, and zero elsewhere."""
    return np.eye(len(ALPHABET), dtype=np.float32)[codes]


def text_of(codes):
    """Return the letters of `codes`, without the blanks at the end."""
    return "".join(ALPHABET[code] for code in codes).rstrip()


def network(digits, units, learning_rate):
    """Return a network that reads a question and writes an answer."""
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((2 * digits + 1, len(ALPHABET))),
            layers.LSTM(units),
            layers.RepeatVector(digits + 1),
            layers.LSTM(units, return_sequences=True),
            layers.Dense(len(ALPHABET)),
        ]
    )
    cost = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(learning_rate), cost, metrics=["accuracy"])
    return model


def train(args):
    """Train; return the result on the questions for testing on the master, None elsewhere."""
    rng = np.random.default_rng(args.seed)  # the same pairs for all workers
    known, unknown = draw_pairs(args.digits, args.samples, rng)
    questions, answers = questions_of(np.concatenate([known, known[:, ::-1]]), args.digits)
    # MULTIVERSO: of each worker's own questions, in an order of their own.
    keras.utils.set_random_seed(args.seed + mv.worker_id())
    my_questions, my_answers = shard(questions, answers)
    test_questions, test_answers = questions_of(unknown, args.digits)
    model = network(args.digits, args.units, args.learning_rate)
    # MULTIVERSO: from here on all workers have the master's model; after every freq batches it
    # sends what they have changed, and fetches what the others' have. The epochs end together.
    callbacks = [MVCallback(model, freq=args.freq, average_metrics=True)]
    master = mv.is_master_worker()
    if master:  # MULTIVERSO: one worker validates and prints for all.
        callbacks.append(EpochBar(args.epochs))
    updates = np.array([args.epochs * math.ceil(len(my_answers) / args.batch_size)])
    mv.aggregate(updates)  # MULTIVERSO: the updates of all workers; now all are ready, too.

    start = time.perf_counter()
    history = model.fit(
        one_hot(my_questions),
        my_answers,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=0,
        callbacks=callbacks,
        validation_data=(one_hot(test_questions), test_answers) if master else None,
    ).history
    # MULTIVERSO: wait until everybody's last batch is in, then fetch the whole.
    mv.barrier()
    callbacks[0].sync()
    seconds = time.perf_counter() - start
    if not master:
        return None
    given = model.predict(one_hot(test_questions), verbose=0).argmax(axis=2)
    return {
        "test_error": float((given != test_answers).any(axis=1).mean()),
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": int(updates[0]),
        "epochs": args.epochs,
        "backend": keras.backend.backend(),
        "history": history,
        "shown": [
            [text_of(question[::-1]), text_of(answer)]
            for question, answer in zip(test_questions[:SHOWN], given[:SHOWN], strict=True)
        ],
    }


def positive(kind):
    """Return a function that turns an option into a positive, finite number."""

    def parse(text):
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError(text)
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--digits", type=int, choices=range(1, 9), default=2, help="of a number, at most")
    option("--samples", type=positive(int), default=20000, help="sums drawn, some of them twice")
    option("--units", type=positive(int), default=128, help="of a layer (default %(default)s)")
    option("--epochs", type=positive(int), default=20, help="(default %(default)s)")
    option("--batch-size", type=positive(int), default=64, help="(default %(default)s)")
    option("--learning-rate", type=positive(float), default=0.003, help="(default %(default)s)")
    option("--freq", type=positive(int), default=1, help="batches between two syncs")
    option("--seed", type=int, default=0, help="of sums and weights (default %(default)s)")
    option("--sync", action="store_true", help="in lock-step: equal to the bit in every run")
    option("--json", metavar="FILE", type=Path, help="write the result to this file, too")
    args = parser.parse_args()
    if args.samples < TENTH:
        parser.error(f"argument --samples: expected {TENTH} or more, received {args.samples}")
    return args


def main():
    """Train, report; return the exit code."""
    args = parse_arguments()
    # MULTIVERSO: the processes find each other here, and part at its end.
    with mv.session(sync=args.sync):
        result = train(args)
    if result is None:
        return 0
    for question, answer in result["shown"]:
        print(f"{question} = {answer}")
    print(
        "test error {test_error:.2%}, {seconds:.2f} seconds"
        " (workers {workers}, updates {updates}, epochs {epochs}, on {backend})".format(**result)
    )
    if args.json is not None:
        args.json.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
