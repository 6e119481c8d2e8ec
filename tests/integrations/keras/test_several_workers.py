"""A model of several workers gives each of them the numbers of one worker with as many replicas."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.integrations.keras.small import mirrored
from tests.processes.cluster import run_workers

WORKERS = 2
DEVICES = 2  # of each worker
SUMS_IN_ANOTHER_ORDER = 1e-5

USE = """
import keras
import numpy as np
from keras import layers

import distlab as dl

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(14, 4).astype("float32")
Y = RANDOM.randint(0, 3, 14).astype("int32")


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def model(strategy):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        made = keras.Sequential([keras.Input((4,)), layers.Dense(6, "relu"), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile("sgd", loss=loss, metrics=["accuracy"])
    return made


def fitted(strategy, unit):
    dl.keras.weigh_by(unit)
    made, seen = model(strategy), Seen()
    history = made.fit(
        X, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[seen], validation_data=(X, Y)
    )
    weights = [weight.tolist() for weight in made.get_weights()]
    return made, {"history": history.history, "losses of batches": seen.losses, "weights": weights}


def numbers(strategy):
    found = {}
    for unit in ("examples", "replicas"):
        made, found[unit] = fitted(strategy, unit)
    both = dl.data.Dataset.from_tensor_slices(X).batch(8)
    found["prediction of a dataset"] = made.predict(both, verbose=0).tolist()
    found["single batches"] = [float(loss) for loss in made.train_on_batch(X[:6], Y[:6])]
    found["single prediction"] = np.asarray(made.predict_on_batch(X[:6])).tolist()
    return found
"""

PROGRAM = f"""
{USE}
strategy = dl.MultiWorkerMirroredStrategy()
for name, value in numbers(strategy).items():
    show(name, value)
divided = dl.MultiWorkerMirroredStrategy(shard_variables=32)
show("in parts", fitted(divided, "replicas")[1])
"""


def test_each_worker_has_the_numbers_of_one_with_all_replicas() -> None:
    environment = {"JAX_NUM_CPU_DEVICES": str(DEVICES), "KERAS_BACKEND": "jax"}
    names: dict[str, Any] = {}
    exec(USE, names)
    expected = names["numbers"](mirrored(WORKERS * DEVICES))
    for worker in run_workers(PROGRAM, workers=WORKERS, environment=environment):
        assert worker.code == 0, worker.shown
        _assert_equal(worker.shown.pop("in parts"), worker.shown["replicas"], "in parts")
        assert list(worker.shown) == list(expected)
        for name, value in expected.items():
            _assert_equal(worker.shown[name], value, name)


def _assert_equal(found: Any, expected: Any, name: str) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected), name
        for key, value in expected.items():
            _assert_equal(found[key], value, f"{name}, {key}")
    elif isinstance(expected, list) and isinstance(expected[0], list):
        for position, pair in enumerate(zip(found, expected, strict=True)):
            _assert_equal(*pair, f"{name}, {position}")
    else:
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=SUMS_IN_ANOTHER_ORDER, err_msg=name
        )
