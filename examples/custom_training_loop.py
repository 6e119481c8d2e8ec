"""TensorFlow's tutorial "Custom training with tf.distribute.Strategy", line by line, with Keras on
JAX: a model, an optimizer and metrics made in the scope are used in the step as they are.

    python examples/custom_training_loop.py --epochs 3 --logs logs
    distlab dashboard runs
    tensorboard --logdir logs
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # before Keras is imported

import distlab as dl

dl.use_cpu_devices(8)  # before JAX starts; leave it out to use accelerators

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits

BATCH = 128


def create_model() -> Any:
    """Returns a small convolutional model of 8x8 images."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main(epochs: int, logs: str | None = None) -> float:
    """Trains on handwritten digits, and returns the accuracy on the test set."""
    digits = load_digits()
    images = (digits.images / 16).astype("float32")[..., None]
    labels = digits.target.astype("int32")
    train = dl.data.Dataset.from_tensor_slices((images[:1437], labels[:1437]))
    test = dl.data.Dataset.from_tensor_slices((images[1437:], labels[1437:]))

    strategy = dl.MirroredStrategy()
    train_dist_dataset = strategy.experimental_distribute_dataset(
        train.shuffle(1437, seed=0).batch(BATCH)
    )
    test_dist_dataset = strategy.experimental_distribute_dataset(test.batch(BATCH))

    with strategy.scope():
        keras.utils.set_random_seed(1)
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        test_loss = keras.metrics.Mean(name="test_loss")
        train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
        test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
        model = create_model()
        optimizer = keras.optimizers.Adam(learning_rate=0.005)

    def compute_loss(labels: Any, predictions: Any) -> Any:
        per_example_loss = loss_object(labels, predictions)
        return dl.nn.compute_average_loss(per_example_loss, global_batch_size=BATCH)

    def train_step(inputs: Any) -> Any:
        images, labels = inputs

        def loss_fn() -> tuple[Any, Any]:  # what stood in `with tf.GradientTape() as tape:`
            predictions = model(images, training=True)
            return compute_loss(labels, predictions), predictions

        (loss, predictions), gradients = dl.keras.value_and_grad(
            loss_fn, model.trainable_variables, has_aux=True
        )
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs: Any) -> None:
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    def distributed_train_step(inputs: Any) -> Any:  # `run` compiles: no tf.function
        per_replica_losses = strategy.run(train_step, args=(inputs,))
        return strategy.reduce("SUM", per_replica_losses, axis=None)

    accuracy = 0.0
    with dl.record("runs/custom_training_loop", overwrite=True, tensorboard=logs) as recording:
        for epoch in range(epochs):
            losses = [distributed_train_step(inputs) for inputs in train_dist_dataset]
            for inputs in test_dist_dataset:
                strategy.run(test_step, args=(inputs,))
            accuracy = float(test_accuracy.result())
            metrics = (train_accuracy, test_accuracy, test_loss)
            recording.log(
                loss=np.mean(losses), **{metric.name: float(metric.result()) for metric in metrics}
            )
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, accuracy {accuracy:.1%}")
            for metric in metrics:
                metric.reset_state()
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default 10)")
    parser.add_argument("--logs", help="a folder for TensorBoard's files (default: none)")
    arguments = parser.parse_args()
    main(arguments.epochs, arguments.logs)
