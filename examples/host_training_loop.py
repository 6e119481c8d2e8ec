"""A trainer in the manner of Orbit and the model garden: the host calls `train(steps)`, which
takes that many further batches from one iterator.

    python examples/host_training_loop.py --loops 10 --steps-per-loop 50
"""

from __future__ import annotations

import argparse

import distlab as dl

dl.use_cpu_devices(8)  # before JAX starts; leave it out to use accelerators

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

BATCH = 64


class Trainer:
    """Owns the model, the optimizer, the metrics and the input of a training."""

    def __init__(self, strategy: dl.Strategy) -> None:
        self.strategy = strategy
        images, labels = load_digits(return_X_y=True)
        images, labels = (images / 16).astype("float32"), labels.astype("int32")
        dataset = dl.data.Dataset.from_tensor_slices((images, labels))
        dataset = dataset.shuffle(len(labels), seed=0).batch(BATCH).repeat()
        self.batches = iter(strategy.experimental_distribute_dataset(dataset))
        self.optimizer = optax.adam(optax.cosine_decay_schedule(0.01, 500))
        with strategy.scope():
            self.params = {
                "w": dl.Variable(jnp.zeros((64, 10)), name="w"),
                "b": dl.Variable(jnp.zeros(10), name="b"),
            }
            self.slots = jax.tree.map(dl.Variable, self.optimizer.init(self.params))
            self.global_step = dl.Variable(0, name="global_step", trainable=False)
            self.train_loss = dl.Variable(
                0.0,
                name="train_loss",
                trainable=False,
                synchronization=dl.VariableSynchronization.ON_READ,
                aggregation=dl.VariableAggregation.SUM,
            )

    def train(self, steps: int) -> float:
        """Takes steps, and returns their mean loss."""
        self.train_loss.assign(0.0)
        for _ in range(steps):
            self.train_step()
        return float(self.train_loss.read_value()) / steps

    def train_step(self) -> None:
        """Takes one step on all replicas."""

        def step_fn(x: jax.Array, y: jax.Array) -> None:
            def loss_fn(params: dict[str, jax.Array]) -> jax.Array:
                losses = optax.softmax_cross_entropy_with_integer_labels(
                    x @ params["w"] + params["b"], y
                )
                return dl.nn.compute_average_loss(losses, global_batch_size=BATCH)

            params = jax.tree.map(dl.Variable.value, self.params)
            loss, gradients = jax.value_and_grad(loss_fn)(params)
            gradients = dl.get_replica_context().all_reduce("SUM", gradients)
            updates, slots = self.optimizer.update(gradients, self.slots, self.params)
            jax.tree.map(dl.Variable.assign, self.slots, slots)
            jax.tree.map(dl.Variable.assign_add, self.params, updates)
            self.global_step.assign_add(1)
            self.train_loss.assign_add(loss)

        self.strategy.run(step_fn, args=next(self.batches))


def main(loops: int, steps_per_loop: int) -> Trainer:
    """Trains a linear classifier of handwritten digits, and returns its trainer."""
    trainer = Trainer(dl.MirroredStrategy())
    for _ in range(loops):
        loss = trainer.train(steps_per_loop)
        print(f"step {int(trainer.global_step.value())}: loss {loss:.3f}")
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--loops", type=int, default=10, help="how often the host looks (10)")
    parser.add_argument("--steps-per-loop", type=int, default=50, help="steps in between (50)")
    given = parser.parse_args()
    with dl.record("runs/host_training_loop", overwrite=True):  # for `distlab dashboard runs`
        main(given.loops, given.steps_per_loop)
