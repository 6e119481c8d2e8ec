"""Programs that ran with Keras on TensorFlow under MirroredStrategy; `goldens` has their numbers.

Each trains a small model on handwritten digits for two epochs, evaluates it and predicts. The
last batch of an epoch is a partial one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

BATCH = 64
TRAIN = 1437


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The digits as vectors of 64 numbers from 0 to 1, and their classes."""
    x, y = load_digits(return_X_y=True)
    return (x / 16).astype("float32"), y.astype("int32")


def data(case: str) -> tuple[Any, Any, Any, Any]:
    """Inputs and classes to train with, and those to evaluate with."""
    x, y = digits()
    if case == "auc":
        y = np.eye(10, dtype="float32")[y]
    used = BATCH * 3 + 5 if case == "bn5" else TRAIN
    return x[:used], y[:used], x[TRAIN:], y[TRAIN:]


def dense(units: int) -> Any:
    return layers.Dense(units, kernel_initializer="zeros")


def hidden_layers(case: str) -> list[Any]:
    if case == "conv":
        convolution = layers.Conv2D(8, 3, kernel_initializer="zeros", padding="same")
        normalized = [layers.Reshape((8, 8, 1)), convolution, layers.BatchNormalization()]
        return [*normalized, layers.ReLU(), layers.MaxPooling2D(), layers.Flatten()]
    if case in ("bn", "bn5", "sync"):
        synchronized = {"synchronized": True} if case == "sync" else {}
        return [dense(32), layers.BatchNormalization(momentum=0.9, **synchronized), layers.ReLU()]
    dropout = [layers.Dropout(0.5, seed=1)] if case == "dropout" else []
    return [dense(32), layers.ReLU(), *dropout]


def optimizer(case: str) -> Any:
    match case:
        case "adam":
            return keras.optimizers.Adam(1e-2)
        case "wd":
            return keras.optimizers.AdamW(1e-2, weight_decay=0.01)
        case "clip":
            return keras.optimizers.SGD(0.5, momentum=0.9, global_clipnorm=0.5)
        case _:
            return keras.optimizers.SGD(0.5)


def build(case: str) -> Any:
    """Makes and compiles the model of a program."""
    model = keras.Sequential([keras.Input((64,)), *hidden_layers(case), dense(10)])
    random = np.random.RandomState(0)
    for weight in model.trainable_weights:
        if len(weight.shape) > 1:
            weight.assign((0.1 * random.randn(*weight.shape)).astype("float32"))
    if case == "auc":
        model = keras.Sequential([model, layers.Softmax()])
        f1 = keras.metrics.F1Score(average="macro", name="f1")
        metrics = [keras.metrics.AUC(name="auc"), f1, "accuracy"]
        model.compile(optimizer(case), loss="categorical_crossentropy", metrics=metrics)
        return model
    metrics = ["accuracy"]
    if case == "metrics":
        top = keras.metrics.SparseTopKCategoricalAccuracy(3, name="top3")
        entropy = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="ce")
        metrics = ["accuracy", top, entropy]
    model.compile(
        optimizer(case),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=metrics,
        weighted_metrics=["accuracy"] if case == "weights" else None,
        steps_per_execution=4 if case == "spe" else 1,
    )
    return model


class BatchLosses(keras.callbacks.Callback):  # type: ignore[misc]
    """The loss that Keras shows after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def on_train_batch_end(self, _: int, logs: Any = None) -> None:
        self.losses.append(logs["loss"])


def disturbed_by(x: np.ndarray, seed: int) -> np.ndarray:
    """Numbers that differ from `x` in their last two bits, as those added in another order do."""
    shares = np.random.default_rng(seed).uniform(-1, 1, x.shape)
    return (x * (1 + 4 * np.finfo("float32").eps * shares)).astype("float32")


def results(case: str, model: Any, disturbed: int = 0) -> dict[str, np.ndarray]:
    """Runs a program and returns its numbers by the names in the goldens.

    Args:
      case: The program.
      model: Its model.
      disturbed: Disturbs the last bits of the inputs, each number in a way of its own; 0 does not.
    """
    x, y, val_x, val_y = data(case)
    if disturbed:
        x, val_x = disturbed_by(x, disturbed), disturbed_by(val_x, disturbed)
    batches = BatchLosses()
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=2,
        shuffle=False,
        verbose=0,
        sample_weight=(1 + np.arange(len(x)) % 3).astype("float32") if case == "weights" else None,
        validation_data=(val_x, val_y),
        callbacks=[batches],
    ).history
    evaluated = model.evaluate(val_x, val_y, batch_size=BATCH, verbose=0, return_dict=True)
    found = {f"hist_{name}": np.array(values) for name, values in history.items()}
    found |= {f"ev_{name}": np.array(value) for name, value in evaluated.items()}
    found |= {f"w{n}": np.asarray(weight) for n, weight in enumerate(model.get_weights())}
    found["pred"] = model.predict(val_x[:133], batch_size=BATCH, verbose=0)
    found["per"] = np.array(batches.losses)
    found["iters"] = np.array(int(model.optimizer.iterations))
    return found
