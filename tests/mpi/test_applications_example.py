"""The applications of Multiverso 2016 with their configuration files, options and inputs."""

import numpy as np
import pytest

from example_programs import ExampleProgramTestCase

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.one_mpi]

REGRESSION = "applications/logistic_regression.py"
EMBEDDING = "applications/word_embedding.py"


class TestLogisticRegression(ExampleProgramTestCase):
    def write_samples(self, name, classes, *, sparse, weighted, count=600):
        """Write samples of classes that a linear function of 6 inputs separates well."""
        rng = np.random.default_rng(0)
        lines = []
        for _ in range(count):
            label = int(rng.integers(classes))
            values = rng.normal(0, 0.5, 6)
            values[label] += 2
            weight = 2.0 if weighted else 1.0
            fields = [f"{value / weight:.4f}" for value in values]
            if sparse:
                fields = [f"{i}:{field}" for i, field in enumerate(fields) if i == label or i > 3]
            lines.append(" ".join([f"{label}:{weight}" if weighted else str(label), *fields]))
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    def configure(self, **options):
        path = self.folder / "test.config"
        options = {
            "input_size": 6,
            "minibatch_size": 20,
            "train_epoch": 3,
            "output_file": self.folder / "outputs",
            "output_model_file": self.folder / "model",
            "use_ps": "true",
        } | options
        lines = [f"{key}={value}" for key, value in options.items()]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    def test_objectives_readers_and_updaters_learn_on_any_number_of_workers(self):
        for ranks, classes, sparse, weighted, options in (
            (1, 2, False, False, {"objective_type": "sigmoid", "updater_type": "sgd"}),
            (2, 3, False, True, {"objective_type": "softmax", "regular_type": "L2"}),
            (2, 4, True, False, {"objective_type": "softmax", "updater_type": "sgd"}),
            (2, 2, True, True, {"objective_type": "ftrl", "alpha": 0.5, "lambda1": 0.01}),
        ):
            outputs = 1 if options["objective_type"] in ("sigmoid", "ftrl") else classes
            with self.subTest(options):
                given = {"sparse": sparse, "weighted": weighted}
                train = self.write_samples("train", classes, **given)
                more = self.write_samples("more", classes, **given, count=20)
                config = self.configure(
                    output_size=outputs,
                    sparse=str(sparse).lower(),
                    reader_type="weight" if weighted else "default",
                    train_file=f"{train};{more}",
                    test_file=train,
                    **options,
                )
                result = self.result(REGRESSION, str(config), ranks=ranks)
                self.assertEqual(result["samples"], 3 * 620)
                self.assertLess(result["error"], 0.08)
                predicted = np.loadtxt(self.folder / "outputs", ndmin=2)
                self.assertEqual(predicted.shape, (600, outputs))
                self.assertEqual(np.load(self.folder / "model").shape, (7, outputs))

    def test_a_saved_model_is_the_start_of_the_next_training(self):
        train = self.write_samples("train", 3, sparse=False, weighted=False)
        options = {"output_size": 3, "objective_type": "softmax", "train_file": train}
        first = self.configure(**options)
        self.result(REGRESSION, str(first), ranks=1)
        (self.folder / "model").rename(self.folder / "start")
        options |= {"init_model_file": self.folder / "start", "learning_rate": 0}
        second = self.configure(**options, updater_type="sgd", test_file=train, train_epoch=1)
        self.assertLess(self.result(REGRESSION, str(second), ranks=2)["error"], 0.08)

    def test_wrong_files_print_one_sentence(self):
        good = {"output_size": 1, "objective_type": "sigmoid", "train_file": self.folder / "train"}
        for options, line, pattern in (
            ({}, "1 0.5", "train:1: expected 6 values, received 1"),
            ({"sparse": "true"}, "1 6:1", "train:1: expected indices of 0 to 5"),
            ({"sparse": "true"}, "1 a:1", "expected 'label index:value ...', received"),
            ({"reader_type": "weight"}, "1 1 2 3 4 5 6", "expected 'label:weight value ...'"),
            ({"sparse": "yes"}, "", "sparse: expected true or false, received 'yes'"),
            ({"output_size": 3}, "", "output_size: expected 1 for sigmoid, received 3"),
            ({"objective_type": "hinge"}, "", "objective_type: expected one of default, sigmoid"),
            ({"reader": "a"}, "", "expected one of input_size, .*received 'reader=a'"),
        ):
            with self.subTest(pattern):
                (self.folder / "train").write_text(line + "\n", "utf-8")
                self.assert_rejects(pattern, REGRESSION, self.configure(**(good | options)))
        self.assert_rejects("none.config", REGRESSION, self.folder / "none.config")


class TestWordEmbedding(ExampleProgramTestCase):
    """Trainings on a text whose lines are about two subjects that share no word."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(0)
        self.subjects = [[f"{name}{letter}" for letter in "abcdefgh"] for name in ("x", "y")]
        lines = [rng.choice(self.subjects[i % 2], 40) for i in range(600)]
        self.text = self.folder / "text.txt"
        self.text.write_text("\n".join(" ".join([*words, "the"]) for words in lines), "utf-8")

    def train(self, *options, ranks=1):
        """Return the vectors by word."""
        output = self.folder / "vectors"
        options = ("-train_file", self.text, "-size", "8", "-output", output, *options)
        self.costs = self.result(EMBEDDING, *map(str, options), ranks=ranks)["costs"]
        return output

    def check_subjects(self, vectors):
        """Check that words of a subject are closer to each other than to the others."""
        sums = [sum(vectors[word] for word in words) for words in self.subjects]
        first, second = (total / np.linalg.norm(total) for total in sums)
        for words, sign in zip(self.subjects, (1, -1), strict=True):
            for word in words:
                self.assertGreater(sign * (vectors[word] @ (first - second)), 0, word)

    def test_all_trainings_separate_the_subjects(self):
        for ranks, options in (
            (1, "-cbow 1 -hs 1"),
            (2, "-cbow 0 -hs 0 -negative 4 -sample 1e-2"),
            (2, "-cbow 1 -hs 0 -negative 4 -alpha 0.1"),
            (1, "-cbow 0 -hs 1 -negative 2 -use_adagrad 1 -alpha 0.1 -threads 4"),
        ):
            with self.subTest(options):
                output = self.train("-epoch", "3", "-window", "3", *options.split(), ranks=ranks)
                head, *lines = output.read_text("utf-8").splitlines()
                self.assertEqual(head, "17 8")
                vectors = {line.split()[0]: np.array(line.split()[1:], float) for line in lines}
                self.check_subjects(vectors)
                # The first batches of a worker may come after most of the other worker's, so with
                # two the first epoch's cost is no reference. Each of the five outputs of a sample
                # of an untrained model costs ln 2.
                self.assertLess(self.costs[-1], self.costs[0] if ranks == 1 else 4.5 * np.log(2))

    def test_files_of_words_choose_the_vocabulary_and_vectors_may_be_binary(self):
        counts = self.folder / "counts.txt"
        words = [*self.subjects[0], *self.subjects[1], "the", "rare"]
        lines = [f"{word} {4 if word == 'rare' else 1500}" for word in words]
        counts.write_text("\n".join(lines), "utf-8")
        stop_words = self.folder / "stop.txt"
        stop_words.write_text("the\n", "utf-8")
        files = ("-read_vocab", counts, "-stopwords", "1", "-sw_file", stop_words)
        output = self.train(*files, "-binary", "1", "-epoch", "3")
        head, _, data = output.read_bytes().partition(b"\n")
        self.assertEqual(head, b"16 8")
        vectors = {}
        while data:
            word, _, data = data.partition(b" ")
            vectors[word.decode()] = np.frombuffer(data[:32], np.float32)
            self.assertEqual(data[32:33], b"\n")
            data = data[33:]
        self.check_subjects(vectors)

    def test_wrong_inputs_print_one_sentence(self):
        options = ("-train_file", self.text, "-size", "8", "-output", self.folder / "vectors")
        counts = self.folder / "counts.txt"
        counts.write_text("word many\n", "utf-8")
        for more, pattern in (
            (("-hs", "0"), "-negative: expected 1 or more with -hs 0"),
            (("-min_count", "100000"), "found 0; see -min_count"),
            (("-read_vocab", counts), "counts.txt:1: expected a word and its count"),
            (("-stopwords", "1"), "-sw_file: expected a file"),
            (("-train_file", "none.txt"), "none.txt"),
        ):
            with self.subTest(pattern):
                self.assert_rejects(pattern, EMBEDDING, *options, *more)
