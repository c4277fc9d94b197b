"""Replicas (a rank's copies of the model), their gradients, and models from files."""

import importlib.util
import json
import logging
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
        from multiverso.learn import Algo, _replica

        self.replicas = _replica
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

    def gradient(self, difference, model, batch=BATCH):
        replica = self.replicas.training_replica(model, self.algo, batch, difference)
        replica.step(batch)
        return replica.gradient.copy()

    def test_captured_gradient_equals_the_change_of_an_sgd_step(self):
        framework = self.gradient(False, self.model())
        difference = self.gradient(True, self.model())
        self.assertGreater(np.abs(framework).max(), 0.01)
        np.testing.assert_allclose(framework, difference, rtol=1e-4, atol=1e-6)

    def test_batches_in_the_other_order_of_bytes_train_the_same(self):
        batch = tuple(array.astype(array.dtype.newbyteorder()) for array in BATCH)
        for difference in (False, True):
            expected = self.gradient(difference, self.model())
            np.testing.assert_array_equal(self.gradient(difference, self.model(), batch), expected)

    def test_step_keeps_weights_and_updates_state_and_metrics(self):
        replica = self.replicas.training_replica(self.model(), self.algo, BATCH)
        weights, state = replica.weights.array.copy(), replica.state.array.copy()
        replica.step(BATCH)
        replica.weights.pull()
        replica.state.pull()
        np.testing.assert_array_equal(replica.weights.array, weights)
        self.assertGreater(np.abs(replica.state.array - state).max(), 0)
        self.assertEqual(sorted(replica.results()), ["accuracy", "loss"])

    def test_push_and_pull_copy_weights_and_state(self):
        replica = self.replicas.training_replica(self.model(), self.algo, BATCH)
        model = replica.model
        moving = [v for v in model.non_trainable_variables if "moving" in v.path]
        for flat, variables in (
            (replica.weights, model.trainable_variables),
            (replica.state, moving),
        ):
            wanted = np.linspace(-1, 1, flat.array.size, dtype=np.float32)
            flat.array[:] = wanted
            flat.push()
            found = [self.keras.ops.convert_to_numpy(v.value).ravel() for v in variables]
            np.testing.assert_array_equal(np.concatenate(found), wanted)
            for variable in variables:
                variable.assign(variable.value * 2)
            flat.pull()
            np.testing.assert_array_equal(flat.array, wanted * 2)

    def test_model_whose_step_hides_its_gradients_is_trained_by_differences(self):
        keras = self.keras

        class Hiding(keras.Model):
            """A model whose step fails with an optimizer that only captures gradients."""

            def train_step(self, *given):
                raise RuntimeError("this step has no gradients")

        inputs = keras.Input((2,))
        model = Hiding(inputs, keras.layers.Dense(1)(inputs))
        batch = np.ones((2, 2), np.float32), np.ones((2, 1), np.float32)
        algo = type(self.algo)("sgd", loss="mse")
        with self.assertLogs("multiverso", "WARNING") as logs:
            replica = self.replicas.training_replica(model, algo, batch)
        self.assertIn("gives no gradients", logs.output[0])
        self.assertEqual(type(replica.model.optimizer).__name__, "SGD")

    def test_softmax_with_binary_crossentropy_warns_and_names_a_better_loss(self):
        from multiverso.learn import Algo

        keras = self.keras
        features, one_hot = np.zeros((4, 2), np.float32), np.eye(4, dtype=np.float32)
        for activation, loss, labels, better in (
            ("softmax", "binary_crossentropy", one_hot, "--loss categorical_crossentropy"),
            ("softmax", "categorical_crossentropy", one_hot, None),
            ("sigmoid", "binary_crossentropy", one_hot, None),
        ):
            model = keras.Sequential(
                [keras.Input((2,)), keras.layers.Dense(4, activation=activation)]
            )
            with self.subTest(activation, loss=loss):
                with self.assertLogs("multiverso", "DEBUG") as logs:
                    logging.getLogger("multiverso").debug("the first message")
                    self.replicas.validation_replica(model, Algo("sgd", loss), (features, labels))
                warnings = [record.getMessage() for record in logs.records[1:]]
                self.assertEqual(len(warnings), better is not None)
                self.assertIn(better or "", "".join(warnings))

    def test_rejects_model_without_weights(self):
        from multiverso.learn import InputError

        inputs = self.keras.Input((2,))
        model = self.keras.Model(inputs, self.keras.layers.Softmax()(inputs))
        with self.assertRaisesRegex(InputError, "expected trainable weights"):
            self.replicas.validation_replica(model, self.algo, (np.ones((2, 2)), np.ones(2)))


@pytest.mark.keras_backend
class TestBatches(KerasTestCase):
    def history(self, data, names="a", parts="p", metrics=(), epochs=1):
        """Train with a zero learning rate, and return the history.

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

        algo = Algo("sgd", loss="mse", metrics=list(metrics), learning_rate=0.0)
        files = [[self.folder / name] for name in ("train.h5", "test.h5")]
        return MPIManager(None, data, algo, Sums(), epochs, *files).train()

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
                found = self.history(data, names, parts)["val_loss"]
                np.testing.assert_allclose(found, loss, 1e-6)

    def test_metrics_of_an_epoch_are_means_over_its_batches_alone(self):
        from multiverso.learn import Data

        class Numbers(Data):
            def generate_data(self):
                numbers = [5, 5] if self.file_names[0].endswith("test.h5") else [1, None, 2, 3]
                for number in numbers:
                    size = 0 if number is None else 4
                    yield np.full((size, 1), number, np.float32), np.zeros((size, 1), np.float32)

        # The worker and the master of a single rank share an object, but not its state.
        metrics = ["mse", self.keras.metrics.MeanAbsoluteError("error")]
        for name, values in self.history(Numbers(4), metrics=metrics, epochs=3).items():
            with self.subTest(name):
                wanted = {"loss": 14 / 3, "mse": 14 / 3, "error": 2, "val_error": 5}.get(name, 25)
                np.testing.assert_allclose(values, [wanted] * 3, 1e-6)

    def test_call_of_generate_data_without_a_batch_is_an_error(self):
        from multiverso.learn import Data, InputError

        class Once(Data):
            def generate_data(self, batches=[BATCH[:1] * 2]):  # noqa: B006
                while batches:
                    yield batches.pop()

        with self.assertRaisesRegex(InputError, "Once: expected a batch from each call"):
            self.history(Once(8), epochs=2)


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

    def old_model(self, version, layers, class_name="Sequential", **config):
        """Return a builder of a model that an old version of Keras has written."""
        from multiverso.learn import ModelFromJson

        layers = [{"class_name": kind, "config": given, **more} for kind, given, more in layers]
        # Before Keras 2.2.3 the configuration of a Sequential was a list.
        model = {
            "class_name": class_name,
            "config": {"name": "old", "layers": layers, **config} if config else layers,
            "keras_version": version,
            "backend": "theano",
        }
        return ModelFromJson(json_str=json.dumps(model))

    def test_loads_models_of_keras_2(self):
        zeros = {"class_name": "Zeros", "config": {}}
        scaling = {"scale": 1.0, "mode": "fan_avg", "distribution": "uniform", "seed": None}
        dense = {
            "trainable": True,
            "activation": "linear",
            "use_bias": True,
            "kernel_initializer": {"class_name": "VarianceScaling", "config": scaling},
            "bias_initializer": zeros,
            "kernel_regularizer": {"class_name": "L1L2", "config": {"l1": 0.0, "l2": 0.1}},
            "bias_regularizer": None,
            "activity_regularizer": None,
            "kernel_constraint": None,
            "bias_constraint": None,
        }
        norm = {"name": "norm", "axis": [1], "momentum": 0.9, "epsilon": 0.25, "scale": True}
        norm |= {"center": True, "beta_initializer": zeros, "gamma_initializer": zeros}
        wide = {"name": "input", "batch_input_shape": [None, 3], "units": 2, **dense}
        sequential = [
            ("Dense", wide, {}),
            ("Dropout", {"name": "drop", "rate": 0.5, "noise_shape": None, "seed": None}, {}),
            ("BatchNormalization", norm, {}),
        ]
        named = {"name": "sequential_1"}
        inputs = [
            (
                "InputLayer",
                {"batch_input_shape": [None, 1], "dtype": "float32", "sparse": False, "name": name},
                {"name": name, "inbound_nodes": []},
            )
            for name in "ab"
        ]
        shared = {"name": "d", "units": 1, **dense, "activation": "relu"}
        functional = [
            *inputs,
            ("Dense", shared, {"name": "d", "inbound_nodes": [[[n, 0, 0, {}]] for n in "ab"]}),
            (
                "Concatenate",
                {"name": "c", "trainable": True, "axis": -1},
                {"name": "c", "inbound_nodes": [[["d", 0, 0, {}], ["d", 1, 0, {}]]]},
            ),
        ]
        ends = {"input_layers": [["a", 0, 0], ["b", 0, 0]], "output_layers": [["c", 0, 0]]}
        x = np.array([[1, 2, 3]], np.float32)
        parts = [x[:, :1], x[:, 1:2]]
        # The weights are ones, so the second model copies its inputs.
        normal = np.full((1, 2), (7 - 1) / 1.25**0.5 + 1)
        for builder, features, wanted in (
            (self.old_model("2.0.8", sequential), x, normal),
            (self.old_model("2.2.4-tf", sequential, **named), x, normal),
            (self.old_model("2.1.0", functional, "Model", **ends), parts, x[:, :2] + 1),
            (self.old_model("2.4.0", functional, "Functional", **ends), parts, x[:, :2] + 1),
        ):
            with self.subTest(builder.json_str[-50:]):
                model = builder.build_model()
                model.set_weights([np.ones_like(array) for array in model.get_weights()])
                found = self.keras.ops.convert_to_numpy(model(features))
                np.testing.assert_allclose(found, wanted, rtol=1e-5)
                self.assertEqual(len(model.losses), 1)

    def test_error_for_an_old_model_names_its_version_in_one_line(self):
        from multiverso.learn import InputError

        advice = "build it with Keras 3 and write it again"
        code = ["4wEAAAAAAAAA" * 1000, None, None]
        for version, layer, config, words in (
            ("1.2.2", "Dense", {"output_dim": 3}, f"received one of Keras 1.2.2; {advice}"),
            (None, "Dense", {"output_dim": 3}, f"received one of Keras 1 or 2; {advice}"),
            ("2.3.1", "Lambda", {"function": code}, f"Keras 2.3.1 with a layer 'Lambda'; {advice}"),
            ("2.3.1", "Long" * 99, {}, "Keras 2.3.1 with a layer 'LongLong"),
            ("2.3.1", "Dense", {"activation": "hard_sigmoid"}, "activation 'hard_sigmoid'"),
            ("2.3.1", "Dense", {"units": 1, "none": code}, f"translated; {advice}"),
            ("2.\n" * 99, "Lambda", {}, r"Keras 2. with a layer"),
        ):
            with self.subTest(words), self.assertRaisesRegex(InputError, words) as caught:
                self.old_model(version, [(layer, config, {})]).build_model()
            self.assertNotIn("\n", str(caught.exception))
            self.assertLess(len(str(caught.exception)), 500)

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
