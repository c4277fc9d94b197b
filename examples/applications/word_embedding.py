r"""The application WordEmbedding of Multiverso 2016, with its options and inputs.

    python examples/applications/word_embedding.py -train_file a.txt -size 100 -output vectors.txt
    mpirun -np 4 python examples/applications/word_embedding.py -train_file a.txt -size 100 \
        -cbow 0 -hs 0 -negative 5 -sample 1e-4 -output vectors.txt

Options have the names and the defaults of 2016, with one dash. The text has words separated by
white space; a window does not reach over the end of a line. -read_vocab names a file with a word
and its count on each line, -sw_file one with a stop word on each. The output is that of word2vec:
the numbers of words and columns, and then a line for each word with its vector, which -binary 1
writes as float32. The workers take turns at the sentences. The lines that make it parallel are
marked `MULTIVERSO`.

Sources: T. Mikolov, K. Chen, G. Corrado and J. Dean, Efficient Estimation of Word Representations
in Vector Space, 2013, and with I. Sutskever, Distributed Representations of Words and Phrases and
their Compositionality, 2013.
"""

import argparse
import collections
import heapq
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import natural, positive, write_json  # noqa: E402

#: Longer lines are cut, so that the workers share a text without line ends.
LONGEST_SENTENCE = 1000
SAMPLES_PER_BATCH = 256
#: Exponent of the distribution of negative samples.
NEGATIVE_POWER = 0.75
#: Clips the norm of a row's update, so that a word that dominates a batch cannot diverge.
MAX_STEP_NORM = 0.5
#: Options of 2016 about reading, threads and machines; they have no effect here.
WITHOUT_EFFECT = (
    *("threads", "data_block_size", "max_preload_data_size", "is_pipeline", "endpoints_file"),
)


class DataError(Exception):
    """An input cannot be used; the text says why."""


def sentences_of(path: Path) -> Iterator[list[str]]:
    """Yield the words of each line, of long lines in parts."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split()
            for begin in range(0, len(words), LONGEST_SENTENCE):
                yield words[begin : begin + LONGEST_SENTENCE]


def counts_of(path: Path) -> collections.Counter:
    """Return the counts in a file with a word and its count on each line."""
    counts = collections.Counter()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        fields = line.split()
        if len(fields) != 2 or not fields[1].isdecimal():
            msg = f"{path}:{number}: expected a word and its count, received {line[:60]!r}"
            raise DataError(msg)
        counts[fields[0]] = int(fields[1])
    return counts


class Vocabulary:
    """The words of the text with their ids, the most frequent word first."""

    def __init__(self, args: argparse.Namespace) -> None:
        if args.read_vocab is not None:
            counts = counts_of(args.read_vocab)
        else:
            counts = collections.Counter(
                itertools.chain.from_iterable(sentences_of(args.train_file))
            )
        stop_words = set()
        if args.stopwords:
            if args.sw_file is None:
                raise DataError("-sw_file: expected a file with -stopwords 1, received none")
            stop_words = set(args.sw_file.read_text("utf-8").split())
        kept = sorted(
            (-count, word)
            for word, count in counts.items()
            if count >= args.min_count and word not in stop_words
        )
        if len(kept) < 2:
            msg = (
                f"expected two or more words that occur {args.min_count} times or more, found "
                f"{len(kept)}; see -min_count"
            )
            raise DataError(msg)
        self.words = [word for _, word in kept]
        self.ids = {word: number for number, word in enumerate(self.words)}
        self.counts = np.array([-count for count, _ in kept], np.float64)
        weights = self.counts**NEGATIVE_POWER
        self.negative = np.cumsum(weights / weights.sum())
        # The probability that an occurrence of a word is used.
        self.keep = np.ones(len(kept))
        if args.sample > 0:
            share = args.sample * self.counts.sum() / self.counts
            self.keep = np.sqrt(share) + share

    def paths(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the inner nodes above each word in a Huffman tree, and the branches taken there.

        Both have the shape (words, longest path); the nodes end with -1.
        """
        heap = [(count, number) for number, count in enumerate(self.counts.tolist())]
        heapq.heapify(heap)
        above = {}
        for node in range(len(self.words), 2 * len(self.words) - 1):
            total = 0.0
            for branch in (0, 1):
                count, child = heapq.heappop(heap)
                above[child] = node, branch
                total += count
            heapq.heappush(heap, (total, node))
        found = []
        for word in range(len(self.words)):
            path, node = [], word
            while node in above:
                node, branch = above[node]
                path.append((node - len(self.words), branch))
            found.append(path)
        longest = max(map(len, found))
        nodes = np.full((len(found), longest), -1, np.int64)
        branches = np.zeros((len(found), longest), np.int64)
        for word, path in enumerate(found):
            nodes[word, : len(path)], branches[word, : len(path)] = zip(*path, strict=True)
        return nodes, branches


def samples_of(sentence: np.ndarray, args: argparse.Namespace, rng) -> Iterator[tuple]:
    """Yield the input words and the target word of each sample of a sentence."""
    for place, width in enumerate(rng.integers(1, args.window + 1, len(sentence))):
        before = sentence[max(place - width, 0) : place]
        neighbors = np.concatenate([before, sentence[place + 1 : place + 1 + width]])
        if args.cbow and len(neighbors):
            yield neighbors, sentence[place]
        elif not args.cbow:
            for neighbor in neighbors:
                yield sentence[place : place + 1], neighbor


def batches_of(vocabulary: Vocabulary, args: argparse.Namespace, rng) -> Iterator[tuple]:
    """Yield the inputs, (samples, most inputs) with -1 at the ends, and targets of this worker."""

    def all_samples() -> Iterator[tuple]:
        # MULTIVERSO: the workers take turns at the sentences.
        sentences = sentences_of(args.train_file)
        for words in itertools.islice(sentences, mv.worker_id(), None, mv.num_workers()):
            ids = np.array([vocabulary.ids[w] for w in words if w in vocabulary.ids], np.int64)
            ids = ids[rng.random(len(ids)) < vocabulary.keep[ids]] if len(ids) else ids
            yield from samples_of(ids, args, rng)

    samples = all_samples()
    while part := list(itertools.islice(samples, SAMPLES_PER_BATCH)):
        inputs = np.full((len(part), max(len(words) for words, _ in part)), -1, np.int64)
        for line, (words, _) in zip(inputs, part, strict=True):
            line[: len(words)] = words
        yield inputs, np.array([target for _, target in part])


class Rows:
    """The distinct rows of a table that a batch names, and the sums of their updates."""

    def __init__(self, table: mv.MatrixTable, ids: np.ndarray) -> None:
        self.table = table
        self.is_used = ids >= 0
        self.ids, places = np.unique(np.where(self.is_used, ids, ids.max()), return_inverse=True)
        self.places = places.reshape(ids.shape)
        # MULTIVERSO: get the rows of the batch.
        self.values = table.get(self.ids)
        self.steps = np.zeros_like(self.values)

    def vectors(self) -> np.ndarray:
        """Return the row of each id, zeros where there is none."""
        return self.values[self.places] * self.is_used[..., None]

    def add(self, steps: np.ndarray) -> None:
        """Sum the update of each id."""
        np.add.at(self.steps, self.places, steps * self.is_used[..., None])

    def send(self, rate: float) -> None:
        """Add the updates to the table."""
        if self.table.updater != "add":  # An optimizer takes the gradient.
            self.table.add_async(-self.steps, self.ids)
            return
        steps = rate * self.steps
        norms = np.linalg.norm(steps, axis=1, keepdims=True)
        steps *= np.minimum(1, MAX_STEP_NORM / np.maximum(norms, 1e-30))
        # MULTIVERSO: add the updates to the shared rows in the background.
        self.table.add_async(steps.astype(np.float32), self.ids)


def learn(inputs: Rows, outputs: list[tuple[Rows, np.ndarray]]) -> float:
    """Sum the updates of a batch; return its mean cost. Each output has its labels, 0 or 1."""
    used = inputs.is_used.sum(axis=1, keepdims=True)
    hidden = inputs.vectors().sum(axis=1) / used
    change = np.zeros_like(hidden)
    cost = 0.0
    for rows, labels in outputs:
        vectors = rows.vectors()
        scores = np.clip(np.einsum("nd,nkd->nk", hidden, vectors), -30, 30)
        losses = np.logaddexp(0, np.where(labels == 1, -scores, scores))
        cost += float((losses * rows.is_used).sum(axis=1).mean())
        errors = (labels - 1 / (1 + np.exp(-scores))) * rows.is_used
        change += np.einsum("nk,nkd->nd", errors, vectors)
        rows.add(errors[..., None] * hidden[:, None, :])
    inputs.add(np.broadcast_to(change[:, None, :], (*inputs.places.shape, change.shape[1])))
    return cost


def train(args: argparse.Namespace) -> dict | None:
    """Train and write the vectors; return the result on the master, None elsewhere."""
    vocabulary = Vocabulary(args)
    size = len(vocabulary.words)
    rng = np.random.default_rng((args.seed, mv.worker_id()))
    options = {}
    if args.use_adagrad:
        options = {"updater": "adagrad", "learning_rate": args.alpha}
        options |= {"initial_accumulator_value": 0.0}
    limit = 0.5 / args.size
    # MULTIVERSO: the vectors are rows of tables.
    initial = mv.initializers.RandomUniform(-limit, limit, seed=args.seed)
    words = mv.MatrixTable(size, args.size, initial, name="words", **options)
    tree = mv.MatrixTable(size, args.size, name="tree", **options) if args.hs else None
    others = None
    if args.negative:
        others = mv.MatrixTable(size, args.size, name="neighbors", **options)
    nodes, branches = vocabulary.paths() if args.hs else (None, None)
    # Of this worker; an estimate, since the probabilities decide which words are used.
    total = args.epoch * float((vocabulary.counts * np.minimum(vocabulary.keep, 1)).sum())
    seen, costs = 0, []
    for _ in range(args.epoch):
        cost = batches = 0
        for input_ids, targets in batches_of(vocabulary, args, rng):
            inputs, outputs = Rows(words, input_ids), []
            if tree is not None:
                outputs.append((Rows(tree, nodes[targets]), 1 - branches[targets]))
            if others is not None:
                drawn = np.searchsorted(
                    vocabulary.negative, rng.random((len(targets), args.negative))
                )
                negatives = np.minimum(drawn, size - 1)
                # A negative sample that is the target itself does not count.
                negatives[negatives == targets[:, None]] = -1
                labels = np.zeros((len(targets), 1 + args.negative))
                labels[:, 0] = 1
                outputs.append((Rows(others, np.hstack([targets[:, None], negatives])), labels))
            cost += learn(inputs, outputs)
            batches += 1
            samples_per_word = 1 if args.cbow else args.window + 1
            seen += mv.num_workers() * len(targets) / samples_per_word
            rate = args.alpha * max(1 - seen / total, 1e-4)
            for rows in (inputs, *(rows for rows, _ in outputs)):
                rows.send(rate)
        costs.append(cost / max(batches, 1))
    for table in filter(None, (words, tree, others)):
        table.flush()
    # MULTIVERSO: wait for all workers' last batches; the master writes the vectors.
    mv.barrier()
    if not mv.is_master_worker():
        return None
    write_vectors(args, vocabulary, words.get())
    return {"workers": mv.num_workers(), "vocabulary": size, "costs": costs}


def write_vectors(args: argparse.Namespace, vocabulary: Vocabulary, vectors: np.ndarray) -> None:
    """Write the vectors in the format of word2vec."""
    with args.output.open("wb") as file:
        file.write(f"{len(vectors)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(vocabulary.words, vectors, strict=True):
            numbers = " ".join(f"{x:.6f}" for x in vector).encode()
            file.write(
                word.encode() + b" " + (vector.tobytes() if args.binary else numbers) + b"\n"
            )


def flag(text: str) -> bool:
    """Convert 0 or 1."""
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def parse_arguments() -> argparse.Namespace:
    """Return the command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    option, default = parser.add_argument, "(default %(default)s)"
    option("-train_file", type=Path, required=True, metavar="FILE", help="the text")
    option("-size", type=positive(int), required=True, help="columns of the vectors")
    option("-output", type=Path, required=True, metavar="FILE", help="for the vectors")
    option("-read_vocab", type=Path, metavar="FILE", help="words and counts, instead of the text's")
    option("-binary", type=flag, default="0", metavar="0|1", help="write float32 " + default)
    option("-cbow", type=flag, default="1", metavar="0|1", help="0 for skip-gram " + default)
    option("-hs", type=flag, default="1", metavar="0|1", help="hierarchical softmax " + default)
    option("-negative", type=natural, default=0, help="negative samples " + default)
    option("-sample", type=float, default=0.0, help="threshold of subsampling " + default)
    option("-alpha", type=positive(float), default=0.025, help="learning rate " + default)
    option("-window", type=positive(int), default=5, help="words on each side " + default)
    option("-min_count", type=natural, default=5, help=default)
    option("-epoch", type=positive(int), default=1, help=default)
    option("-stopwords", type=flag, default="0", metavar="0|1", help="leave out " + default)
    option("-sw_file", type=Path, metavar="FILE", help="the words that -stopwords leaves out")
    option("-use_adagrad", type=flag, default="0", metavar="0|1", help=default)
    for name in WITHOUT_EFFECT:
        option(f"-{name}", help="has no effect")
    option("--seed", type=natural, default=0, help=default)
    option("--json", type=Path, metavar="FILE", help="also write the result to FILE")
    return parser.parse_args()


def main() -> int:
    """Train and report; return the exit code."""
    args = parse_arguments()
    try:
        if not args.hs and not args.negative:
            raise DataError("-negative: expected 1 or more with -hs 0, received 0")
        # MULTIVERSO: the processes of the job join one session for this block.
        with mv.session():
            result = train(args)
    except (DataError, OSError, UnicodeDecodeError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if result is None:
        return 0
    print(
        "{workers} workers, {vocabulary} words: cost {first:.3f} to {last:.3f}".format(
            first=result["costs"][0], last=result["costs"][-1], **result
        )
    )
    return write_json(result, args.json)


if __name__ == "__main__":
    sys.exit(main())
