"""TensorFlow's tutorial "Distributed training with Keras", on JAX: the model is made in the
strategy's scope, and `fit`, `evaluate` and `predict` run on its replicas.

    KERAS_BACKEND=jax python examples/keras_fit.py --epochs 4
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"  # before keras is imported

import distlab as dl

dl.use_cpu_devices(8)  # before JAX starts; leave it out to use accelerators

import keras
from sklearn.datasets import load_digits

BATCH_SIZE_PER_REPLICA = 16


def make_model() -> keras.Model:
    """Makes and compiles the model."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(),
        metrics=["accuracy"],
    )
    return model


def decay(epoch: int) -> float:
    """Returns the learning rate of an epoch."""
    return 1e-2 if epoch < 2 else 1e-3


def main(epochs: int, folder: Path) -> None:
    """Trains on handwritten digits, saves the model, and evaluates it elsewhere."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    dataset = dl.data.Dataset.from_tensor_slices((images, labels.astype("int32")))

    strategy = dl.MirroredStrategy()
    print("Number of devices:", strategy.num_replicas_in_sync)
    batch_size = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
    train = dataset.take(1437).shuffle(1437, seed=0).batch(batch_size)
    test = dataset.skip(1437).batch(batch_size)

    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = make_model()

    best = folder / "best.keras"
    callbacks = [
        keras.callbacks.ModelCheckpoint(best, monitor="val_loss", save_best_only=True),
        keras.callbacks.LearningRateScheduler(decay),
        dl.keras.Controlled(name="digits"),  # the dashboard can pause and stop it
    ]
    history = model.fit(train, epochs=epochs, validation_data=test, callbacks=callbacks, verbose=0)
    for epoch, (loss, accuracy) in enumerate(
        zip(history.history["loss"], history.history["val_accuracy"], strict=True), start=1
    ):
        print(f"epoch {epoch}: loss {loss:.4f}, validation accuracy {accuracy:.1%}")

    alone = keras.models.load_model(best)
    print(f"without a strategy: accuracy {alone.evaluate(test, verbose=0)[1]:.1%}")
    with dl.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        replicated = keras.models.load_model(best)
    print(f"on 2 replicas: accuracy {replicated.evaluate(test, verbose=0)[1]:.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    record = dl.record("runs/keras_fit", overwrite=True)  # for `distlab dashboard runs`
    with tempfile.TemporaryDirectory() as folder, record:
        main(parser.parse_args().epochs, Path(folder))
