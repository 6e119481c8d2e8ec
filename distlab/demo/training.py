"""The demo's training loop: a minimal program with distlab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import distlab as dl
from distlab.demo import model
from distlab.demo.digits import Digits

BATCH = 64
RATE = 0.05

Variables = dict[str, dl.Variable]


class Log(Protocol):
    """A recording, as the training loop uses it."""

    def log(self, *, loss: jax.Array) -> None:
        """Logs the loss of a step."""


def variables() -> Variables:
    """Creates the model's variables; inside `strategy.scope()`, one copy on each device."""
    return {name: dl.Variable(value, name=name) for name, value in model.initial().items()}


def train_step(params: Variables, rate: float = RATE) -> Callable[..., jax.Array]:
    """Returns one step of gradient descent, the function that each replica runs.

    A replica sees its own part of the global batch. Sums over examples, not
    means over replicas, are added up and divided by the size of a full batch:
    so each image has the same weight, also in the last batch, which is smaller and
    does not divide evenly.
    """

    def step(images: jax.Array, labels: jax.Array) -> jax.Array:
        def summed_loss(values: dict[str, jax.Array]) -> jax.Array:
            return jnp.sum(model.losses(values, images, labels))

        values = {name: variable.value() for name, variable in params.items()}
        loss, gradients = jax.value_and_grad(summed_loss)(values)
        context = dl.get_replica_context()
        loss, gradients, examples = context.all_reduce("SUM", (loss, gradients, len(labels)))
        for name, variable in params.items():
            variable.assign_sub(rate / BATCH * gradients[name])
        return loss / examples

    return step


def train(
    strategy: dl.Strategy,
    params: Variables,
    digits: Digits,
    *,
    run: Log,
    steps: int,
    report: Callable[[int, jax.Array], None],
) -> None:
    """Trains for a number of steps, or until the loop is stopped."""
    dataset = dl.data.Dataset.from_tensor_slices((digits.train_images, digits.train_labels))
    dataset = dataset.shuffle(len(digits.train_labels), seed=0).batch(BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)
    step = train_step(params)
    looped = dl.controlled(_repeated(batches, steps), name="the demo's training")
    for done, (images, labels) in enumerate(looped, start=1):
        per_replica = strategy.run(step, args=(images, labels))
        loss = strategy.reduce("MEAN", per_replica, axis=None)
        run.log(loss=loss)
        report(done, loss)


def count_correct(
    strategy: dl.Strategy,
    params: Variables,
    images: NDArray[np.float32],
    labels: NDArray[np.int32],
) -> int:
    """Classifies images on all replicas and returns the number of correct ones."""

    def evaluate(images: jax.Array, labels: jax.Array) -> jax.Array:
        values = {name: variable.value() for name, variable in params.items()}
        return model.correct(values, images, labels)

    dataset = dl.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
    right = 0.0
    for batch in strategy.experimental_distribute_dataset(dataset):
        right += float(strategy.reduce("SUM", strategy.run(evaluate, args=batch), axis=None))
    return round(right)


def steps_per_epoch(digits: Digits) -> int:
    """Returns the number of batches of an epoch, the last and smaller one included."""
    return -(-len(digits.train_labels) // BATCH)


def _repeated(batches: Any, steps: int) -> Iterator[Any]:
    """Yields `steps` batches, shuffled anew in each epoch."""
    left = steps
    while left > 0:
        for batch in batches:
            yield batch
            left -= 1
            if left == 0:
                return
