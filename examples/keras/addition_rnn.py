"""A recurrent network in Keras that learns to add: "12+39" in, "51" out, as characters.

    python examples/keras/addition_rnn.py
    mpirun -np 4 python examples/keras/addition_rnn.py
    KERAS_BACKEND=torch mpirun -np 2 python examples/keras/addition_rnn.py --sync

One layer encodes the question as a state; another decodes the state to the answer. The test sums
are not in the training data, in either order of the two numbers. Each worker trains on its part of
the questions, so the number of samples seen does not depend on the number of workers. The lines
that make it parallel are marked `MULTIVERSO`.

Sources: W. Zaremba and I. Sutskever, Learning to Execute, 2014, for the task; I. Sutskever, O.
Vinyals and Q. V. Le, Sequence to Sequence Learning with Neural Networks, 2014, for the network and
for reversing the question, so that it ends near the start of the answer.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, positive, report  # noqa: E402
from keras_backend import EpochBar, keras  # noqa: E402

# MULTIVERSO: the callback that syncs the models, and the function that divides the data.
from multiverso.keras_ext import MVCallback, shard  # noqa: E402  # isort: skip

ALPHABET = "0123456789+ "  # spaces pad shorter texts
CODES = {letter: code for code, letter in enumerate(ALPHABET)}
TEST_DIVISOR = 10  # one in this many pairs of numbers is for testing
NUM_SHOWN = 5  # questions printed at the end with the network's answers


def draw_pairs(digits, samples, rng):
    """Return distinct random pairs of numbers for training and for testing."""
    pairs = rng.integers(0, 10**digits, (samples, 2))
    pairs.sort(axis=1)  # a + b and b + a are the same sum
    pairs = rng.permutation(np.unique(pairs, axis=0))
    num_test = max(1, len(pairs) // TEST_DIVISOR)
    return pairs[num_test:], pairs[:num_test]


def encode(texts):
    """Return the codes of texts of one length: int32, shape (texts, letters)."""
    return np.array([[CODES[letter] for letter in text] for text in texts], np.int32)


def questions_of(pairs, digits):
    """Return the reversed questions and the answers as codes."""
    length = 2 * digits + 1
    questions = [f"{a}+{b}".ljust(length)[::-1] for a, b in pairs]
    answers = [f"{a + b}".ljust(digits + 1) for a, b in pairs]
    return encode(questions), encode(answers)


def one_hot(codes):
    """Return the one-hot vector of each code."""
    return np.eye(len(ALPHABET), dtype=np.float32)[codes]


def text_of(codes):
    """Return the letters of `codes` without trailing spaces."""
    return "".join(ALPHABET[code] for code in codes).rstrip()


def build_network(digits, units, learning_rate):
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
    """Train; return the result on the test questions on the master, None elsewhere."""
    rng = np.random.default_rng(args.seed)  # the same pairs on all workers
    pairs, test_pairs = draw_pairs(args.digits, args.samples, rng)
    questions, answers = questions_of(np.concatenate([pairs, pairs[:, ::-1]]), args.digits)
    # MULTIVERSO: each worker takes its own questions, in its own order.
    keras.utils.set_random_seed(args.seed + mv.worker_id())
    my_questions, my_answers = shard(questions, answers)
    test_questions, test_answers = questions_of(test_pairs, args.digits)
    model = build_network(args.digits, args.units, args.learning_rate)
    # MULTIVERSO: all workers start from the master's model. The callback exchanges changes after
    # every freq batches, and the epochs end together.
    callbacks = [MVCallback(model, freq=args.freq, average_metrics=True)]
    master = mv.is_master_worker()
    if master:  # MULTIVERSO: one worker validates and prints for all.
        callbacks.append(EpochBar(args.epochs))
    updates = np.array([args.epochs * math.ceil(len(my_answers) / args.batch_size)])
    mv.aggregate(updates)  # MULTIVERSO: sum the updates of all workers and wait for them.

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
    # MULTIVERSO: wait until every worker has added its last batch, then fetch the result.
    mv.barrier()
    callbacks[0].sync()
    seconds = time.perf_counter() - start
    if not master:
        return None
    predicted = model.predict(one_hot(test_questions), verbose=0).argmax(axis=2)
    return {
        "test_error": float((predicted != test_answers).any(axis=1).mean()),
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": int(updates[0]),
        "epochs": args.epochs,
        "backend": keras.backend.backend(),
        "history": history,
        "shown": [
            [text_of(question[::-1]), text_of(answer)]
            for question, answer in zip(test_questions, predicted[:NUM_SHOWN], strict=False)
        ],
    }


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=20, batch_size=64, learning_rate=0.003)
    option = parser.add_argument
    option("--digits", type=int, choices=range(1, 9), default=2, help="per number, at most")
    option("--samples", type=positive(int), default=20000, help="sums, including duplicates")
    option("--units", type=positive(int), default=128, help="per layer (default %(default)s)")
    option("--freq", type=positive(int), default=1, help="batches between syncs")
    option("--sync", action="store_true", help="lock-step: runs are bitwise identical")
    args = parser.parse_args()
    if args.samples < TEST_DIVISOR:
        parser.error(
            f"argument --samples: expected an integer >= {TEST_DIVISOR}, received {args.samples}"
        )
    return args


def main():
    """Train and report; return the exit code."""
    args = parse_arguments()
    # MULTIVERSO: the processes of the job join one session for this block.
    with mv.session(sync=args.sync):
        result = train(args)
    if result is None:
        return 0
    for question, answer in result["shown"]:
        print(f"{question} = {answer}")
    return report(result, args.json, f", on {result['backend']}")


if __name__ == "__main__":
    sys.exit(main())
