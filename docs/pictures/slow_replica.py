"""A training of digits in which replica 5 has more work than the others: `film.py` films it.

    python docs/pictures/slow_replica.py FOLDER ROUNDS SECONDS

Replica 5 multiplies matrices ROUNDS times in a step, the others 20 times. It serves its page
until its standard input ends.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from sklearn.datasets import load_digits

import distlab as dl
import distlab_dashboard

BATCH = 64
RATE = 0.2


def main(folder: Path, rounds: int, seconds: float) -> None:
    """Trains for some seconds, and serves the page."""
    dl.use_cpu_devices(8)
    digits = load_digits()
    images, labels = (digits.images / 16).astype("float32"), digits.target.astype("int32")
    strategy = dl.MirroredStrategy()
    dataset = dl.data.Dataset.from_tensor_slices((images, labels))
    batches = strategy.experimental_distribute_dataset(dataset.shuffle(1797, seed=0).batch(BATCH))
    with strategy.scope():
        weights = dl.Variable(jnp.zeros((64, 10)), name="weights")

    def loss_of(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(x.reshape(len(x), 64) @ w)
        return -jnp.take_along_axis(scores, y[:, None], axis=1).sum()

    def step(x: jax.Array, y: jax.Array) -> jax.Array:
        context = dl.get_replica_context()
        loss, gradient = jax.value_and_grad(loss_of)(weights.value(), x, y)
        more = jnp.where(context.replica_id_in_sync_group == 5, rounds, 20)
        start = jnp.full((128, 128), 0.01) + 1e-9 * x.sum()  # of no examples, too
        work = jax.lax.fori_loop(0, more, lambda _, a: jnp.tanh(a @ a), start).mean()
        shared = (loss, gradient + 1e-12 * work, len(y))
        loss, gradient, examples = context.all_reduce("SUM", shared)
        weights.assign_sub(RATE / BATCH * gradient)
        return loss / examples

    with dl.record(folder, config={"rounds of replica 5": rounds}) as recording:
        server = distlab_dashboard.serve(recording, open_browser=False, port=0)
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for batch in dl.controlled(batches, name="the digits"):
                losses = strategy.run(step, args=batch)
                recording.log(loss=strategy.reduce("MEAN", losses, axis=None))
                number += 1
                if number == 200:  # the page is open by then
                    recording.capture(steps=20)
        sys.stdin.read()
        server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
