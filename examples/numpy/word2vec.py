"""Word vectors by skip-gram with negative sampling with NumPy, by all workers of an MPI job.

    python examples/numpy/word2vec.py
    mpirun -np 4 python examples/numpy/word2vec.py
    mpirun -np 4 python examples/numpy/word2vec.py --text FILE --words "for list"

The vectors are rows of two matrix tables. For each batch, a worker gets only the rows of the words
in it and adds the updates to them, so the vocabulary may be larger than one process could hold. The
rows of the next batch are fetched, and the updates of the last one are added, in the background.
Without --text, the program reads the language reference that ships with Python.

Source: T. Mikolov, I. Sutskever, K. Chen, G. Corrado and J. Dean, Distributed Representations of
Words and Phrases and their Compositionality, 2013. The lines that make the program parallel are
marked `MULTIVERSO`.
"""

import collections
import math
import re
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, positive, write_json  # noqa: E402

#: Exponent of the distribution of negative samples, and subsampling threshold (from the paper).
NEGATIVE_POWER = 0.75
SUBSAMPLE = 1e-3
#: Clips the norm of a row's update, so that a word that dominates a batch cannot diverge.
MAX_STEP_NORM = 0.5


def default_text() -> str:
    """Return the language reference that `help()` shows; it ships with Python."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


class Vocabulary:
    """The words that occur at least `min_count` times, the most frequent first."""

    def __init__(self, tokens: list[str], min_count: int) -> None:
        counted = collections.Counter(tokens)
        kept = sorted((-count, word) for word, count in counted.items() if count >= min_count)
        self.words = [word for _, word in kept]
        self.ids = {word: index for index, word in enumerate(self.words)}
        counts = np.array([-count for count, _ in kept], np.float64)
        share = counts / max(counts.sum(), 1)
        # For each word, the probability that an occurrence is kept.
        self.keep = np.minimum(1, np.sqrt(SUBSAMPLE / share) + SUBSAMPLE / share)
        weights = share**NEGATIVE_POWER
        #: The cumulative distribution of negative samples.
        self.negative = np.cumsum(weights / max(weights.sum(), 1e-300))

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.words)

    def encode(self, tokens: list[str]) -> np.ndarray:
        """Return the ids of the tokens that are in the vocabulary, in order."""
        return np.array([self.ids[token] for token in tokens if token in self.ids], np.int64)


def pairs(text: np.ndarray, vocabulary: Vocabulary, window: int, rng) -> np.ndarray:
    """Return the (word, neighbor) pairs of a text in random order; the shape is (n, 2)."""
    text = text[rng.random(len(text)) < vocabulary.keep[text]]
    window_of_word = rng.integers(1, window + 1, len(text))
    found = []
    for distance in range(1, min(window + 1, len(text))):
        first = np.flatnonzero(window_of_word[:-distance] >= distance)
        neighbors = np.stack([text[first], text[first + distance]], axis=1)
        found += [neighbors, neighbors[:, ::-1]]
    return rng.permutation(np.concatenate(found)) if found else np.empty((0, 2), np.int64)


def step(word_rows, other_rows, words, others, learning_rate):
    """Return the updates of both sets of rows and the mean cost of a batch.

    Parameters
    ----------
    word_rows, other_rows : arrays of float32, shapes (a, dimension) and (b, dimension)
        The vectors that the batch uses.
    words : array of int64, shape (n,)
        Index in `word_rows` of the word of each pair.
    others : array of int64, shape (n, 1 + negatives)
        Indices in `other_rows` of its neighbor, followed by its negative samples.

    """
    word, other = word_rows[words], other_rows[others]
    scores = np.einsum("nd,nkd->nk", word, other)
    truth = np.zeros_like(scores)
    truth[:, 0] = 1
    cost = np.logaddexp(0, np.where(truth == 1, -scores, scores)).sum(axis=1).mean()
    error = learning_rate * (truth - 1 / (1 + np.exp(-scores)))
    word_steps, other_steps = np.zeros_like(word_rows), np.zeros_like(other_rows)
    np.add.at(word_steps, words, np.einsum("nk,nkd->nd", error, other))
    np.add.at(other_steps, others, error[:, :, None] * word[:, None, :])
    for steps in (word_steps, other_steps):
        norms = np.linalg.norm(steps, axis=1, keepdims=True)
        steps *= np.minimum(1, MAX_STEP_NORM / np.maximum(norms, 1e-30))
    return word_steps, other_steps, float(cost)


def batches_of(samples: np.ndarray, vocabulary: Vocabulary, args, rng):
    """Yield the rows of each batch, and its words and other words as indices in the rows."""
    for begin in range(0, len(samples), args.batch_size):
        batch = samples[begin : begin + args.batch_size]
        drawn = rng.random((len(batch), args.negatives))
        negatives = np.minimum(np.searchsorted(vocabulary.negative, drawn), len(vocabulary) - 1)
        others = np.hstack([batch[:, 1:], negatives])
        word_ids, words = np.unique(batch[:, 0], return_inverse=True)
        other_ids, others_in_rows = np.unique(others, return_inverse=True)
        yield word_ids, other_ids, words.reshape(-1), others_in_rows.reshape(others.shape)


def with_rows(batches, word_table, other_table):
    """Yield the batches with their rows, which are fetched one batch ahead."""
    ahead = None
    for batch in batches:
        # MULTIVERSO: begin to get the rows of this batch. `fresh` adds this worker's own changes.
        rows = (
            word_table.get_async(batch[0], fresh=True),
            other_table.get_async(batch[1], fresh=True),
        )
        if ahead is not None:
            yield ahead[0], [future.result() for future in ahead[1]]
        ahead = batch, rows
    if ahead is not None:
        yield ahead[0], [future.result() for future in ahead[1]]


def train(args, tokens: list[str]):
    """Train on the text; return the result on the master, None elsewhere."""
    vocabulary = Vocabulary(tokens, args.min_count)
    text = vocabulary.encode(tokens)
    # MULTIVERSO: each worker reads its own part of the text.
    part = np.array_split(text, mv.num_workers())[mv.worker_id()]
    rng = np.random.default_rng((args.seed, mv.worker_id()))
    # MULTIVERSO: the vectors are rows of tables.
    shape, limit = (len(vocabulary), args.dimension), 0.5 / args.dimension
    initial = mv.initializers.RandomUniform(-limit, limit, seed=args.seed)
    word_table = mv.MatrixTable(*shape, initial, name="words")
    other_table = mv.MatrixTable(*shape, name="neighbors")

    master = mv.is_master_worker()
    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    costs, num_samples = [], 0
    # disable=None shows the bar only on a terminal.
    progress = tqdm(
        total=args.epochs * len(part),
        unit="word",
        unit_scale=True,
        disable=None if master else True,
    )
    for epoch in range(args.epochs):
        samples = pairs(part, vocabulary, args.window, rng)
        batches = math.ceil(len(samples) / args.batch_size)
        cost = 0.0
        drawn = batches_of(samples, vocabulary, args, rng)
        for index, (batch, rows) in enumerate(with_rows(drawn, word_table, other_table)):
            word_ids, other_ids, words, others = batch
            rate = args.learning_rate * (1 - (epoch + index / batches) / args.epochs)
            word_steps, other_steps, batch_cost = step(
                *rows, words, others, max(rate, args.learning_rate * 1e-3)
            )
            # MULTIVERSO: add this batch's updates to the shared rows.
            word_table.add_async(word_steps, word_ids)
            other_table.add_async(other_steps, other_ids)
            cost += batch_cost
            progress.update(len(part) / batches)
        num_samples += len(samples)
        costs.append(cost / max(batches, 1))
        progress.set_postfix_str(f"cost {costs[-1]:.3f}")
    progress.close()
    # MULTIVERSO: sum the sample counts of all workers, and wait for every worker's last batch.
    total_samples = mv.aggregate(np.array([num_samples], np.int64))[0]
    mv.barrier()
    if not master:
        return None
    seconds = time.perf_counter() - start
    return {
        "nearest": nearest(vocabulary, word_table.get(), args.words),
        "costs": costs,
        "seconds": seconds,
        "samples": int(total_samples),
        "samples_per_second": total_samples / seconds,
        "workers": mv.num_workers(),
        "vocabulary": len(vocabulary),
        "tokens": len(text),
    }


def nearest(vocabulary: Vocabulary, vectors: np.ndarray, words: list[str], count: int = 5):
    """Return the `count` words with the highest cosine similarity to each of `words`."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.maximum(norms, 1e-30)
    found = {}
    for word in words:
        if word not in vocabulary.ids:
            continue
        similarity = directions @ directions[vocabulary.ids[word]]
        ranking = [i for i in np.argsort(-similarity) if i != vocabulary.ids[word]]
        found[word] = [vocabulary.words[i] for i in ranking[:count]]
    return found


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=5, batch_size=256, learning_rate=0.1)
    option = parser.add_argument
    option("--text", type=Path, metavar="FILE", help="UTF-8 text (default: Python's manual)")
    option("--words", type=str.split, default=["class", "list", "import", "except", "float"],
           help="words to print the nearest words of, as one quoted argument")  # fmt: skip
    option("--dimension", type=positive(int), default=64, help="(default %(default)s)")
    option("--window", type=positive(int), default=5, help="(default %(default)s)")
    option("--negatives", type=positive(int), default=5, help="(default %(default)s)")
    option("--min-count", type=positive(int), default=5, help="(default %(default)s)")
    return parser.parse_args()


def main():
    """Read the text, train and report; return the exit code."""
    args = parse_arguments()
    try:
        text = default_text() if args.text is None else args.text.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        print(f"error: cannot read {args.text}: {problem}", file=sys.stderr)
        return 2
    tokens = re.findall(r"[^\W\d_]+", text.lower())
    if len(Vocabulary(tokens, args.min_count)) < 2:
        print(f"error: expected at least two words that occur {args.min_count} times or more"
              " in the text, found fewer; see --min-count", file=sys.stderr)  # fmt: skip
        return 2
    with mv.session():  # MULTIVERSO: the processes of the job join one session for this block.
        result = train(args, tokens)
    if result is None:
        return 0
    for word, others in result["nearest"].items():
        print(f"{word}: {' '.join(others)}")
    print(
        "cost {0[0]:.3f} to {0[1]:.3f}, {seconds:.2f} seconds, {samples_per_second:,.0f} samples"
        " per second (workers {workers}, vocabulary {vocabulary})".format(
            (result["costs"][0], result["costs"][-1]), **result
        )
    )
    return write_json(result, args.json)


if __name__ == "__main__":
    sys.exit(main())
