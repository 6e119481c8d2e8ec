"""A training loop for one worker or several: the program says nothing of how many there are.

    python examples/two_workers.py
    distlab launch --workers 2 --devices 4 examples/two_workers.py
    distlab launch --workers 2 --max-restarts 1 examples/two_workers.py --backup backup

Alone it runs on one CPU device, or on all accelerators. Started by `distlab launch`, or by a cluster
manager that sets TF_CONFIG, it is a worker among others. With --backup a run that is started
again goes on at the batch that comes next; that needs Orbax: pip install "distlab[saving]".
"""

from __future__ import annotations

import argparse
import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import distlab as dl

BATCH = 120  # of all replicas together


def main(epochs: int, backup: str | None = None) -> float:
    """Trains a linear model on handwritten digits, and returns the loss of the last epoch."""
    strategy = dl.MultiWorkerMirroredStrategy()  # before JAX computes anything
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype("float32"), labels.astype("int32")
    dataset = dl.data.Dataset.from_tensor_slices((images, labels)).shuffle(1797, seed=0)
    batches = strategy.experimental_distribute_dataset(dataset.batch(BATCH))

    with strategy.scope():
        weights = dl.Variable(jnp.zeros((64, 10)), name="weights")
        bias = dl.Variable(jnp.zeros(10), name="bias")
        epoch = dl.Variable(0, name="epoch")

    def train_step(x: jax.Array, y: jax.Array) -> jax.Array:
        def loss_fn(w: jax.Array, b: jax.Array) -> jax.Array:
            scores = jax.nn.log_softmax(x @ w + b)
            losses = -jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0]
            return dl.nn.compute_average_loss(losses, global_batch_size=BATCH)

        loss, gradients = jax.value_and_grad(loss_fn, argnums=(0, 1))(weights.value(), bias.value())
        gradients = dl.get_replica_context().all_reduce("SUM", gradients)
        weights.assign_sub(0.5 * gradients[0])
        bias.assign_sub(0.5 * gradients[1])
        return loss

    loss = float("nan")
    for number in range(epochs):
        losses = [
            strategy.reduce("SUM", strategy.run(train_step, args=batch), axis=None)
            for batch in batches
        ]
        loss = float(np.mean([float(one) for one in losses]))
        print(f"epoch {number + 1}: loss {loss:.3f}, {strategy.num_replicas_in_sync} replicas")
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=5, help="passes over the data (default 5)")
    arguments = parser.parse_args()
    main(arguments.epochs)
