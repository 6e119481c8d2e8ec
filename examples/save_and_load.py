"""TensorFlow's tutorial "Save and load a model using a distribution strategy": train on 8
replicas, resume on 3, serve without a strategy and on 2 replicas without the model's code.

    python examples/save_and_load.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import distlab as dl

dl.use_cpu_devices(8)  # before JAX starts; leave it out to use accelerators

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

BATCH = 64
EPOCHS = 4


class Trainer:
    """A model, its optimizer and its input, made under a strategy and saved together."""

    def __init__(self, strategy: dl.Strategy, folder: Path) -> None:
        self.strategy = strategy
        images, labels = load_digits(return_X_y=True)
        images, labels = (images / 16).astype("float32"), labels.astype("int32")
        dataset = dl.data.Dataset.from_tensor_slices((images, labels))
        dataset = dataset.shuffle(len(labels), seed=0).batch(BATCH).repeat(EPOCHS)
        self.batches = iter(strategy.experimental_distribute_dataset(dataset))
        self.optimizer = optax.adam(0.01)
        with strategy.scope():
            self.params = {
                "w": dl.Variable(jnp.zeros((64, 10)), name="w"),
                "b": dl.Variable(jnp.zeros(10), name="b"),
            }
            self.slots = jax.tree.map(dl.Variable, self.optimizer.init(self.params))
            self.step = dl.Variable(0, name="step")
            self.seen = dl.Variable(
                0,
                name="seen",
                synchronization=dl.VariableSynchronization.ON_READ,
                aggregation=dl.VariableAggregation.SUM,
            )
        checkpoint = dl.train.Checkpoint(
            params=self.params,
            slots=self.slots,
            step=self.step,
            seen=self.seen,
            batches=self.batches,
        )
        self.manager = dl.train.CheckpointManager(checkpoint, folder, max_to_keep=2)

    def logits(self, x: jax.Array) -> jax.Array:
        """Returns the scores of the ten digits."""
        return x @ self.params["w"].value() + self.params["b"].value()

    def train_step(self, x: jax.Array, y: jax.Array) -> None:
        """Updates the model by one replica's part of a batch."""

        def loss_fn(params: dict[str, jax.Array]) -> jax.Array:
            scores = jax.nn.log_softmax(x @ params["w"] + params["b"])
            losses = -jnp.take_along_axis(scores, y[:, None], axis=1)
            return dl.nn.compute_average_loss(losses, global_batch_size=BATCH)

        values = {name: variable.value() for name, variable in self.params.items()}
        slots = jax.tree.map(lambda variable: variable.value(), self.slots)
        gradients = dl.get_replica_context().all_reduce("SUM", jax.grad(loss_fn)(values))
        updates, slots = self.optimizer.update(gradients, slots, values)
        jax.tree.map(lambda variable, update: variable.assign_add(update), self.params, updates)
        jax.tree.map(lambda variable, slot: variable.assign(slot), self.slots, slots)
        self.step.assign_add(1)
        self.seen.assign_add(jnp.int32(len(y)))

    def train(self, steps: int | None = None) -> None:
        """Goes on from the newest checkpoint, for some steps or to the end, and saves."""
        restored = self.manager.restore_or_initialize()
        where = Path(restored).name if restored else "the beginning"
        first = int(self.step)
        for number, (x, y) in enumerate(self.batches, 1):
            self.strategy.run(self.train_step, args=(x, y))
            if number == steps:
                break
        self.manager.save()
        print(
            f"{self.strategy.num_replicas_in_sync} replicas, from {where}: steps {first} to "
            f"{int(self.step)}, {int(self.seen)} examples so far"
        )


def main(folder: Path) -> float:
    """Trains twice and serves, and returns the accuracy of what was loaded."""
    Trainer(dl.MirroredStrategy(), folder / "training").train(steps=50)
    fewer = Trainer(dl.MirroredStrategy(jax.devices()[:3]), folder / "training")
    fewer.train()

    # A checkpoint may be read in part, under no strategy.
    params = {"w": dl.Variable(jnp.zeros((64, 10))), "b": dl.Variable(jnp.zeros(10))}
    latest = dl.train.latest_checkpoint(folder / "training")
    dl.train.Checkpoint(params=params).restore(latest).expect_partial()

    # Without the model's code: a program with its weights, for any batch size.
    spec = dl.data.TensorSpec((None, 64), np.dtype("float32"))
    path = dl.export(fewer.logits, spec).save(folder / "model.dlx")
    serve: Any = dl.load_exported(path)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    np.testing.assert_allclose(
        serve(images), images @ params["w"].numpy() + params["b"].numpy(), rtol=1e-4, atol=1e-4
    )
    two = dl.MirroredStrategy(jax.devices()[:2])
    batches = dl.data.Dataset.from_tensor_slices(images).batch(256)
    scores = [
        two.gather(two.run(serve, args=(x,)), axis=0)
        for x in two.experimental_distribute_dataset(batches)
    ]
    accuracy = float((np.argmax(np.concatenate(scores), axis=1) == labels).mean())
    print(f"served on 2 replicas: {accuracy:.1%} of {len(labels)} digits are right")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--folder", type=Path, help="where to save (default: a temporary folder)")
    given = parser.parse_args().folder
    with (
        tempfile.TemporaryDirectory() as temporary,
        dl.record("runs/save_and_load", overwrite=True),
    ):
        main(given or Path(temporary))
