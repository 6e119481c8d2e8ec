"""A training loop in the manner of TensorFlow's tutorial "Custom training with
tf.distribute.Strategy": the step is a function inside the function that runs it.

    python examples/custom_training_loop.py --epochs 3
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


def main(epochs: int) -> float:
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
        # Each replica counts its own examples; reading the variable outside adds them up.
        correct, seen = (
            dl.Variable(
                0.0,
                name=name,
                trainable=False,
                synchronization=dl.VariableSynchronization.ON_READ,
                aggregation=dl.VariableAggregation.SUM,
            )
            for name in ("correct", "seen")
        )

    def logits(values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ values["w1"] + values["b1"])
        return hidden @ values["w2"] + values["b2"]

    def distributed_train_step(x: dl.PerReplica, y: dl.PerReplica) -> jax.Array:
        def train_step(x: jax.Array, y: jax.Array) -> jax.Array:
            def loss_fn(values: dict[str, jax.Array]) -> jax.Array:
                log_probabilities = jax.nn.log_softmax(logits(values, x))
                per_example = -jnp.take_along_axis(log_probabilities, y[:, None], axis=1)
                return dl.nn.compute_average_loss(per_example, global_batch_size=BATCH)

            values = {name: variable.value() for name, variable in params.items()}
            loss, gradients = jax.value_and_grad(loss_fn)(values)
            gradients = dl.get_replica_context().all_reduce("SUM", gradients)
            for name, variable in params.items():
                variable.assign_sub(0.5 * gradients[name])
            return loss

        per_replica_losses = strategy.run(train_step, args=(x, y))
        return strategy.reduce("SUM", per_replica_losses, axis=None)

    def distributed_test_step(x: dl.PerReplica, y: dl.PerReplica) -> None:
        def test_step(x: jax.Array, y: jax.Array) -> None:
            values = {name: variable.value() for name, variable in params.items()}
            right = jnp.argmax(logits(values, x), axis=1) == y
            correct.assign_add(jnp.sum(right, dtype=jnp.float32))
            seen.assign_add(jnp.float32(len(y)))

        strategy.run(test_step, args=(x, y))

    accuracy = 0.0
    for epoch in range(epochs):
        losses = [distributed_train_step(x, y) for x, y in train_batches]
        for x, y in test_batches:
            distributed_test_step(x, y)
        accuracy = float(correct.read_value() / seen.read_value())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, accuracy {accuracy:.1%}")
        correct.assign(0.0)
        seen.assign(0.0)
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default 10)")
    main(parser.parse_args().epochs)
