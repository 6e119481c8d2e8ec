"""A training loop in the manner of TensorFlow's tutorial "Custom training with
tf.distribute.Strategy": the step is a function inside the function that runs it, and metrics
made in the scope are updated in it. They need Flax: pip install "distlab[flax]".

    python examples/custom_training_loop.py --epochs 3 --logs logs
    tensorboard --logdir logs
"""

from __future__ import annotations

import argparse

import distlab as dl

dl.use_cpu_devices(8)  # before JAX starts; leave it out where there are accelerators

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

BATCH = 128


def logits(values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Returns the perceptron's predictions."""
    hidden = jax.nn.relu(x @ values["w1"] + values["b1"])
    return hidden @ values["w2"] + values["b2"]


def losses_of(predictions: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the cross entropy of each example."""
    return -jnp.take_along_axis(jax.nn.log_softmax(predictions), y[:, None], axis=1)[:, 0]


def main(epochs: int, logs: str | None = None) -> float:
    """Trains a perceptron on handwritten digits, and returns the accuracy on the test set."""
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype("float32"), labels.astype("int32")
    train = dl.data.Dataset.from_tensor_slices((images[:1437], labels[:1437]))
    test = dl.data.Dataset.from_tensor_slices((images[1437:], labels[1437:]))

    strategy = dl.MirroredStrategy()
    train_batches = strategy.experimental_distribute_dataset(
        train.shuffle(1437, seed=0).batch(BATCH)
    )
    test_batches = strategy.experimental_distribute_dataset(test.batch(BATCH))

    with strategy.scope():
        rng = np.random.default_rng(0)
        params = {
            "w1": dl.Variable(rng.normal(0, 0.1, (64, 64)).astype("float32"), name="w1"),
            "b1": dl.Variable(jnp.zeros(64), name="b1"),
            "w2": dl.Variable(rng.normal(0, 0.1, (64, 10)).astype("float32"), name="w2"),
            "b2": dl.Variable(jnp.zeros(10), name="b2"),
        }
        # Each replica counts its own examples; the result is that of all of them.
        train_accuracy = dl.metrics.Accuracy(name="train_accuracy")
        test_accuracy = dl.metrics.Accuracy(name="test_accuracy")
        test_loss = dl.metrics.Mean(name="test_loss")

    def distributed_train_step(x: dl.PerReplica, y: dl.PerReplica) -> jax.Array:
        def train_step(x: jax.Array, y: jax.Array) -> jax.Array:
            def loss_fn(values: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
                predictions = logits(values, x)
                losses = losses_of(predictions, y)
                return dl.nn.compute_average_loss(losses, global_batch_size=BATCH), predictions

            values = {name: variable.value() for name, variable in params.items()}
            (loss, predictions), gradients = jax.value_and_grad(loss_fn, has_aux=True)(values)
            train_accuracy.update_state(y, predictions)
            gradients = dl.get_replica_context().all_reduce("SUM", gradients)
            for name, variable in params.items():
                variable.assign_sub(0.5 * gradients[name])
            return loss

        per_replica_losses = strategy.run(train_step, args=(x, y))
        return strategy.reduce("SUM", per_replica_losses, axis=None)

    def distributed_test_step(x: dl.PerReplica, y: dl.PerReplica) -> None:
        def test_step(x: jax.Array, y: jax.Array) -> None:
            values = {name: variable.value() for name, variable in params.items()}
            predictions = logits(values, x)
            test_accuracy.update_state(y, predictions)
            test_loss.update_state(losses_of(predictions, y))

        strategy.run(test_step, args=(x, y))

    metrics = (train_accuracy, test_accuracy, test_loss)
    accuracy = 0.0
    with dl.record(None, tensorboard=logs) as recording:
        for epoch in range(epochs):
            losses = [distributed_train_step(x, y) for x, y in train_batches]
            for x, y in test_batches:
                distributed_test_step(x, y)
            accuracy = float(test_accuracy.result())
            results = {metric.name: metric.result() for metric in metrics}
            recording.log(loss=np.mean(losses), **results)
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
