"""Replicas (a rank's copies of the model), their gradients, and models from files."""

import importlib.util
import json
import unittest

import numpy as np
import pytest
from folders import FolderTestCase
from some_keras import BACKEND, import_keras

pytestmark = pytest.mark.frameworks

MISSING = [name for name in ("h5py", "keras", "tqdm") if importlib.util.find_spec(name) is None]

RNG = np.random.default_rng(3)
BATCH = (
    RNG.standard_normal((8, 5, 5, 1)).astype(np.float32),
    RNG.integers(0, 3, 8),
    RNG.uniform(0.5, 2, 8).astype(np.float32),
)


@unittest.skipIf(MISSING or BACKEND is None, f"needs {', '.join(MISSING) or 'a backend of Keras'}")
class KerasTestCase(FolderTestCase):
    def setUp(self):
        super().setUp()
        self.keras = import_keras()


class TestReplicas(KerasTestCase):
    def setUp(self):
        super().setUp()
        from multiverso.learn import Algo, replicas

        self.replicas = replicas
        self.algo = Algo("sgd", loss="sparse_categorical_crossentropy", learning_rate=1.0)

    def model(self):
        """Return a network with running means, a regularizer and always the same weights."""
        self.keras.utils.set_random_seed(1)
        layers = self.keras.layers
        inputs = self.keras.Input((5, 5, 1))
        x = layers.Conv2D(3, 3, activation="tanh")(inputs)
        x = layers.BatchNormalization()(x)
        x = layers.Flatten()(x)
        outputs = layers.Dense(3, activation="softmax", kernel_regularizer="l2")(x)
        return self.keras.Model(inputs, outputs)

    def gradient(self, kind, model):
        replica = self.replicas.training_replica(model, self.algo, BATCH, kind)
        replica.push()
        replica.step(BATCH)
        return replica.gradient.copy()

    def test_captured_gradient_equals_the_change_of_an_sgd_step(self):
        framework = self.gradient("framework", self.model())
        difference = self.gradient("difference", self.model())
        self.assertGreater(np.abs(framework).max(), 0.01)
        np.testing.assert_allclose(framework, difference, rtol=1e-4, atol=1e-6)

    def test_step_keeps_weights_and_updates_state_and_metrics(self):
        replica = self.replicas.training_replica(self.model(), self.algo, BATCH)
        weights, state = replica.weights.copy(), replica.state.copy()
        replica.step(BATCH)
        replica.pull()
        replica.pull_state()
        np.testing.assert_array_equal(replica.weights, weights)
        self.assertGreater(np.abs(replica.state - state).max(), 0)
        self.assertEqual(sorted(replica.results()), ["accuracy", "loss"])

    def test_push_and_pull_copy_weights_and_state(self):
        replica = self.replicas.training_replica(self.model(), self.algo, BATCH)
        wanted = np.linspace(-1, 1, replica.weights.size, dtype=np.float32)
        replica.weights[:] = wanted
        replica.push()
        state = np.linspace(1, 2, replica.state.size, dtype=np.float32)
        replica.state[:] = state
        replica.push_state()
        replica.finish()
        variables = replica.model.trainable_variables
        found = [self.keras.ops.convert_to_numpy(v.value).ravel() for v in variables]
        np.testing.assert_array_equal(np.concatenate(found), wanted)
        replica.pull()
        np.testing.assert_array_equal(replica.weights, wanted)
        replica.state[:] = 0
        replica.pull_state()
        np.testing.assert_array_equal(replica.state, state)

    def test_rejects_model_without_weights(self):
        from multiverso.learn import InputError

        inputs = self.keras.Input((2,))
        model = self.keras.Model(inputs, self.keras.layers.Softmax()(inputs))
        with self.assertRaisesRegex(InputError, "expected trainable weights"):
            self.replicas.validation_replica(model, self.algo, (np.ones((2, 2)), np.ones(2)))


@pytest.mark.keras_backend
class TestBatches(KerasTestCase):
    def validation_loss(self, data, names, parts):
        """Train with a zero learning rate, and return the loss of the validation.

        The model has an input of one column for each of `names`, and sums them in as many outputs.
        """
        from multiverso.learn import Algo, ModelBuilder, MPIManager

        keras = self.keras

        class Sums(ModelBuilder):
            def build_model(self):
                inputs = [keras.Input((1,), name=name) for name in names]
                x = keras.layers.Concatenate()(inputs) if len(inputs) > 1 else inputs[0]
                dense = [keras.layers.Dense(1, kernel_initializer="ones", name=p) for p in parts]
                return keras.Model(inputs, [layer(x) for layer in dense])

        algo = Algo("sgd", loss="mse", metrics=[], learning_rate=0.0)
        files = [[self.folder / name] for name in ("train.h5", "test.h5")]
        return MPIManager(None, data, algo, Sums(), 1, *files).train()["val_loss"]

    def test_validation_takes_every_structure_of_a_batch(self):
        import h5py

        from multiverso.learn import Data, H5Data

        class Loading(Data):
            def __init__(self, *samples):
                super().__init__(batch_size=4)
                self.samples = samples

            def load_data(self, file_name):
                return self.samples

        class Yielding(Loading):
            def generate_data(self):
                return iter([list(self.samples)])

        x = np.arange(6, dtype=np.float32)[:, None]
        one, zero = np.ones_like(x), np.zeros_like(x)
        single = (x, zero), ([x], [zero]), ((x,), zero), ({"a": x}, zero)
        several = (
            ([x, one], [zero, zero]),
            ((x, one), (zero, zero)),
            ({"a": x, "b": one}, {"p": zero, "q": zero}),
        )
        cases = [
            (f"{kind.__name__} {number}", kind(*samples), names, parts, loss)
            for names, parts, loss, structures in (
                ("a", "p", np.mean(x**2), single),
                ("ab", "pq", 2 * np.mean((x + 1) ** 2), several),
            )
            for number, samples in enumerate(structures)
            for kind in (Loading, Yielding)
        ]
        for name in ("train.h5", "test.h5"):
            with h5py.File(self.folder / name, "w") as file:
                file["features/a"], file["features/b"] = x, one
                file["labels/p"], file["labels/q"] = zero, zero
        cases.append(("H5Data", H5Data(4), "ab", "pq", cases[-1][-1]))
        for name, data, names, parts, loss in cases:
            with self.subTest(name):
                np.testing.assert_allclose(self.validation_loss(data, names, parts), loss, 1e-6)


class TestModelsFromFiles(KerasTestCase):
    def test_loads_architecture_and_weights(self):
        from multiverso.learn import ModelFromJson, ModelFromKeras

        model = self.keras.Sequential([self.keras.Input((2,)), self.keras.layers.Dense(3)])
        names = ("a.json", "a.weights.h5", "a.keras")
        text, weights, whole = (self.folder / name for name in names)
        text.write_text(model.to_json(), "utf-8")
        model.save_weights(weights)
        model.save(whole)
        for builder in (
            ModelFromJson(filename=text, weights=weights),
            ModelFromJson(json_str=model.to_json(), weights=weights),
            ModelFromKeras(whole),
        ):
            found = builder.build_model().get_weights()
            for ours, theirs in zip(found, model.get_weights(), strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_rejects_invalid_model_files_in_one_line(self):
        from multiverso.learn import InputError, ModelFromJson, ModelFromKeras

        for name, text in (("a", "{"), ("b", "{}"), ("c", "[1]"), ("d", "words"), ("e", "3")):
            path = self.folder / name
            path.write_text(text, "utf-8")
            for builder in (ModelFromJson(filename=path), ModelFromKeras(path)):
                with self.subTest(text), self.assertRaises(InputError) as caught:
                    builder.build_model()
                self.assertNotIn("\n", str(caught.exception))
                self.assertIn(name, str(caught.exception))
        with self.assertRaisesRegex(InputError, "No such file"):
            ModelFromJson(filename=self.folder / "none").build_model()

    def test_does_not_run_code_in_model_files(self):
        from multiverso.learn import InputError, ModelFromJson, ModelFromKeras

        marker = self.folder / "marker"
        layer = self.keras.layers.Lambda(lambda x, path=str(marker): (open(path, "w"), x)[1])
        model = self.keras.Sequential([self.keras.Input((2,)), layer])
        marker.unlink(missing_ok=True)
        text, whole = self.folder / "a.json", self.folder / "a.keras"
        text.write_text(model.to_json(), "utf-8")
        self.assertIn("Lambda", json.loads(text.read_text("utf-8"))["config"]["layers"][1].values())
        model.save(whole)
        for builder in (ModelFromJson(filename=text), ModelFromKeras(whole)):
            with self.assertRaises(InputError):
                builder.build_model()
        self.assertFalse(marker.exists())
