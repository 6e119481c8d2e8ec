"""A training loop for one worker or several: nothing in the program says how many.

    python examples/two_workers.py
    distlab launch --workers 2 --devices 4 --dashboard runs examples/two_workers.py
    distlab launch --workers 2 --max-restarts 1 examples/two_workers.py --backup backup

Alone it runs on one CPU device, or on all accelerators. Started by `distlab launch`, or by a
cluster manager that sets TF_CONFIG, it is a worker among others. With --backup a restarted run
resumes where it stopped; that needs Orbax: pip install "distlab[checkpoint]".
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from sklearn.datasets import load_digits

import distlab as dl

BATCH = 120  # of all replicas together


def main(epochs: int, backup: str | None = None) -> float:
    """Trains a linear model on handwritten digits, and returns the loss of the last epoch."""
    strategy = dl.MultiWorkerMirroredStrategy()  # before JAX computes anything
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype("float32"), labels.astype("int32")
    dataset = dl.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(labels), seed=0).batch(BATCH, drop_remainder=True).repeat(epochs)
    options = dl.data.Options()  # each worker takes its part of every batch
    options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
    batches = iter(strategy.experimental_distribute_dataset(dataset.with_options(options)))
    steps_per_epoch = len(labels) // BATCH

    with strategy.scope():
        weights = dl.Variable(jnp.zeros((64, 10)), name="weights")
        bias = dl.Variable(jnp.zeros(10), name="bias")
        step = dl.Variable(0, name="step")

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

    state: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if backup is not None:
        checkpoint = dl.train.Checkpoint(weights=weights, bias=bias, step=step, batches=batches)
        state = dl.BackupAndRestore(checkpoint, backup, save_freq=5)
    loss = float("nan")
    with state as saved, dl.record("runs/two_workers", overwrite=True) as recording:
        if int(step):
            print(f"goes on after step {int(step)}")
        for x, y in batches:
            per_replica = strategy.run(train_step, args=(x, y))
            step.assign_add(1)
            if int(step) % steps_per_epoch == 0:
                loss = float(strategy.reduce("SUM", per_replica, axis=None))
                replicas = strategy.num_replicas_in_sync
                print(f"step {int(step)}: loss {loss:.3f}, {replicas} replicas")
                recording.log(int(step), loss=loss)
            if saved is not None:
                saved.step()
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=5, help="passes over the data (default 5)")
    parser.add_argument("--backup", help="a folder for the state of a run that may be interrupted")
    arguments = parser.parse_args()
    main(arguments.epochs, arguments.backup)
