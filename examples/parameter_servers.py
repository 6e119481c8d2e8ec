"""Asynchronous training: workers that do not wait for one another, and variables on servers.

    python examples/parameter_servers.py
    python examples/parameter_servers.py --workers 3 --servers 1 --epochs 8

TensorFlow's tutorial "Parameter server training with ParameterServerStrategy", its custom
training loop: a model learns which sets of three heroes contain the first of them. Each worker
and each parameter server is a process of this machine, and the table of embeddings is divided
over the servers. Needs Dask, Flax and Optax: pip install "distlab[cluster,flax]" optax.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import distlab as dl

VOCABULARY = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman"]
UNITS = 64


def examples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of three words for each example, and whether "avenger" is one."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    reviews = [draw.sample(VOCABULARY, 3) for _ in range(count)]
    features = [[VOCABULARY.index(word) for word in each] for each in reviews]
    labels = [["avenger" in each] for each in reviews]
    return np.array(features, np.int32), np.array(labels, np.int32)


class Trainer:
    """The model's variables, and what workers do with them.

    Args:
      strategy: The strategy.
    """

    def __init__(self, strategy: dl.ParameterServerStrategy) -> None:
        self.strategy = strategy
        self.optimizer = optax.rmsprop(0.05)
        with strategy.scope():
            shape = (len(VOCABULARY), UNITS)
            table = jax.random.uniform(jax.random.key(0), shape, minval=-0.05, maxval=0.05)
            self.model = {
                "table": dl.Variable(table, name="table"),
                "weights": dl.Variable(jnp.zeros((UNITS, 1)), name="weights"),
                "bias": dl.Variable(jnp.zeros(1), name="bias"),
            }
            self.state = jax.tree.map(dl.Variable, self.optimizer.init(values(self.model)))
            self.accuracy = dl.metrics.Accuracy(threshold=0.0)

    def train_step(self, iterator: Iterator[Any]) -> jax.Array:
        """Takes one step on the worker's next batch, and returns its loss."""

        def replica_fn(features: jax.Array, labels: jax.Array) -> jax.Array:
            def loss_fn(weights: Any) -> jax.Array:
                logits = predict(weights, features)
                losses = optax.sigmoid_binary_cross_entropy(logits, labels)
                return dl.nn.compute_average_loss(losses)

            weights = values(self.model)
            loss, gradients = jax.value_and_grad(loss_fn)(weights)
            updates, state = self.optimizer.update(gradients, values(self.state), weights)
            jax.tree.map(lambda variable, update: variable.assign_add(update), self.model, updates)
            jax.tree.map(lambda variable, new: variable.assign(new), self.state, state)
            return loss

        losses = self.strategy.run(replica_fn, args=next(iterator))
        return self.strategy.reduce("SUM", losses, axis=None)

    def test_step(self, iterator: Iterator[Any]) -> None:
        """Counts what the model gets right on the worker's next batch."""

        def replica_fn(features: jax.Array, labels: jax.Array) -> None:
            self.accuracy.update_state(labels, predict(values(self.model), features))

        self.strategy.run(replica_fn, args=next(iterator))


def predict(weights: Any, features: jax.Array) -> jax.Array:
    """Returns the logit of each example."""
    embedded = weights["table"][features].mean(axis=1)
    return embedded @ weights["weights"] + weights["bias"]


def values(variables: Any) -> Any:
    """Returns the present values of a nest of variables."""
    return jax.tree.map(lambda variable: variable.value(), variables)


def main(workers: int, servers: int, epochs: int) -> None:
    """Starts the processes, and trains on them."""
    with dl.launch(workers=workers, parameter_servers=servers) as cluster:
        partitioner = dl.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=256, max_shards=servers
        )
        strategy = dl.ParameterServerStrategy(cluster.resolver, variable_partitioner=partitioner)
        trainer = Trainer(strategy)
        for name, variable in trainer.model.items():
            for part in getattr(variable, "variables", [variable]):
                print(f"{name}: {part.shape} on server {part.parameter_server}")
        train(trainer, epochs)


def train(trainer: Trainer, epochs: int) -> None:
    """Schedules steps on the workers, and prints how well the model does after each epoch."""
    coordinator = dl.coordinator.ClusterCoordinator(trainer.strategy)

    def iterator(count: int, seed: int, batch: int) -> Iterator[Any]:
        def dataset_fn(_: dl.InputContext) -> dl.data.Dataset:
            dataset = dl.data.Dataset.from_tensor_slices(examples(count, seed))
            return dataset.shuffle(count).repeat().batch(batch)

        return iter(
            coordinator.create_per_worker_dataset(
                lambda: trainer.strategy.distribute_datasets_from_function(dataset_fn)
            )
        )

    train_iterator, test_iterator = iterator(200, 0, batch=32), iterator(64, 1, batch=8)
    for epoch in range(epochs):
        trainer.accuracy.reset_state()
        losses = [coordinator.schedule(trainer.train_step, (train_iterator,)) for _ in range(10)]
        coordinator.join()
        for _ in range(8):
            coordinator.schedule(trainer.test_step, (test_iterator,))
        coordinator.join()
        loss = float(np.mean(coordinator.fetch(losses)))
        accuracy = float(trainer.accuracy.result())
        print(f"epoch {epoch + 1}: loss {loss:.3f}, test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--servers", type=int, default=2, help="parameter servers (default 2)")
    parser.add_argument("--epochs", type=int, default=4, help="of 10 steps each (default 4)")
    arguments = parser.parse_args()
    with dl.record("runs/parameter_servers", overwrite=True):  # for `distlab dashboard runs`
        main(arguments.workers, arguments.servers, arguments.epochs)
