"""An optimizer in the manner of `tf.keras.optimizers.legacy`: replicas call `apply_gradients`,
which merges them, reduces the gradients and updates each variable in place.

    python examples/optimizer_through_merge_call.py --epochs 5
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import distlab as dl

dl.use_cpu_devices(4)  # before JAX starts; leave it out to use accelerators

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_diabetes

BATCH = 32


class Momentum:
    """Gradient descent with momentum, whose slots lie beside their variables."""

    def __init__(self, rate: float, momentum: float) -> None:
        self.rate = rate
        self.momentum = momentum
        self._slots: dict[str, dl.Variable] = {}

    def create_slots(self, variables: Iterable[dl.Variable]) -> None:
        """Makes the velocities; called once, in the strategy's scope."""
        strategy = dl.get_strategy()
        for variable in variables:
            with strategy.extended.colocate_vars_with(variable):
                zeros = jnp.zeros(variable.shape, variable.dtype)
                self._slots[variable.name] = dl.Variable(
                    zeros, name=f"{variable.name}/velocity", trainable=False
                )

    def apply_gradients(self, gradients_and_variables: list[tuple[Any, dl.Variable]]) -> None:
        """Updates the variables by the sum of all replicas' gradients; called by each replica."""
        dl.get_replica_context().merge_call(self._apply_merged, args=(gradients_and_variables,))

    def _apply_merged(
        self, strategy: dl.Strategy, gradients_and_variables: list[tuple[Any, dl.Variable]]
    ) -> None:
        reduced = strategy.extended.batch_reduce_to(dl.ReduceOp.SUM, gradients_and_variables)
        for gradient, (_, variable) in zip(reduced, gradients_and_variables, strict=True):
            velocity = self._slots[variable.name]
            strategy.extended.update(variable, self._apply_one, args=(velocity, gradient))

    def _apply_one(self, variable: Any, velocity: Any, gradient: Any) -> None:
        velocity.assign(self.momentum * velocity.value() - self.rate * gradient)
        variable.assign_add(velocity.value())


def main(epochs: int) -> list[float]:
    """Fits a linear regression of diabetes' progression, and returns the loss of each epoch."""
    x, y = load_diabetes(return_X_y=True)
    x, y = x.astype("float32") * 20, ((y - y.mean()) / y.std()).astype("float32")
    strategy = dl.MirroredStrategy()
    dataset = dl.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=0).batch(BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        w = dl.Variable(jnp.zeros(10), name="w")
        b = dl.Variable(0.0, name="b")
        optimizer = Momentum(rate=0.02, momentum=0.9)
        optimizer.create_slots([w, b])

    def train_step(x: jax.Array, y: jax.Array) -> jax.Array:
        def loss_fn(w: jax.Array, b: jax.Array) -> jax.Array:
            return dl.nn.compute_average_loss((x @ w + b - y) ** 2, global_batch_size=BATCH)

        loss, gradients = jax.value_and_grad(loss_fn, argnums=(0, 1))(w.value(), b.value())
        optimizer.apply_gradients(list(zip(gradients, [w, b], strict=True)))
        return loss

    means = []
    for epoch in range(epochs):
        per_replica = [strategy.run(train_step, args=batch) for batch in batches]
        losses = [strategy.reduce("SUM", loss, axis=None) for loss in per_replica]
        means.append(float(np.sum(losses)) * BATCH / len(x))
        print(f"epoch {epoch + 1}: loss {means[-1]:.3f}")
    return means


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default 10)")
    epochs = parser.parse_args().epochs
    with dl.record("runs/optimizer_through_merge_call", overwrite=True):
        main(epochs)
