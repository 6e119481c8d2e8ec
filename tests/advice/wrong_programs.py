"""Programs that train something else than they should, and near-twins that are right.

Each takes some steps on tiny data. `expected` is the cause and the subject that advice has to name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import distlab as dl

STEPS = 7
NUMBERS = np.random.default_rng(7)
X = NUMBERS.normal(size=(STEPS * 24, 6)).astype(np.float32)
Y = (X @ NUMBERS.normal(size=(6, 2))).astype(np.float32)
ON_READ = dl.VariableSynchronization.ON_READ


def mirrored(replicas: int = 2, **options: Any) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)], **options)


def batches(strategy: Any, size: int = 24) -> Iterator[Any]:
    dataset = dl.data.Dataset.from_tensor_slices((X, Y)).shuffle(len(X), seed=1).batch(size)
    return iter(strategy.experimental_distribute_dataset(dataset))


def reduce(op: str, tree: Any) -> Any:
    return dl.get_replica_context().all_reduce(op, tree)


def own_key(key: Any) -> Any:
    return jax.random.fold_in(key, dl.get_replica_context().replica_id_in_sync_group)


def mean_loss(weights: Any, x: Any, y: Any) -> Any:
    return jnp.mean((x @ weights["kernel"] + weights["bias"] - y) ** 2)


def start() -> Any:
    return {"kernel": jnp.zeros((6, 2)), "bias": jnp.zeros((2,))}


def descend(weights: Any, grads: Any, rate: float = 0.1) -> Any:
    return jax.tree.map(lambda w, g: w - rate * g, weights, grads)


# --- variables -----------------------------------------------------------------------------------


def with_variables(
    strategy: Any, gradients: Callable[[Any, Any, Any], Any], size: int = 24
) -> None:
    """The custom loop of TensorFlow's guide, with the gradients that a function returns."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")
        bias = dl.Variable(jnp.zeros((2,)), name="bias")

    def train_step(inputs: Any) -> Any:
        x, y = inputs
        weights = {"kernel": kernel.value(), "bias": bias.value()}
        grads = gradients(weights, x, y)
        kernel.assign_sub(0.1 * grads["kernel"])
        bias.assign_sub(0.1 * grads["bias"])
        return mean_loss(weights, x, y)

    for inputs in batches(strategy, size):
        strategy.run(train_step, args=(inputs,))


def local(weights: Any, x: Any, y: Any) -> Any:
    return jax.grad(mean_loss)(weights, x, y)


def averaged(weights: Any, x: Any, y: Any) -> Any:
    return reduce("MEAN", local(weights, x, y))


def summed(weights: Any, x: Any, y: Any) -> Any:
    return reduce("SUM", local(weights, x, y))


def weighed_by_counts(weights: Any, x: Any, y: Any) -> Any:
    """Weighs each replica's mean gradient by the number of its examples."""
    grads = jax.grad(mean_loss)(weights, x, y)
    sums, count = reduce("SUM", (jax.tree.map(lambda g: g * len(x), grads), jnp.float32(len(x))))
    return jax.tree.map(lambda g: g / count, sums)


def with_metrics(strategy: Any) -> None:
    """Metrics of each replica's own, which are added up when they are read."""
    with strategy.scope():
        total = dl.Variable(
            0.0, synchronization=ON_READ, aggregation=dl.VariableAggregation.SUM, name="total"
        )
        moving = dl.Variable(jnp.zeros(6), aggregation=dl.VariableAggregation.MEAN, name="moving")
        seen = dl.Variable(0, name="seen")

    def evaluate(inputs: Any) -> None:
        x, _ = inputs
        total.assign_add(x.sum())
        moving.assign(0.9 * moving.value() + 0.1 * x.mean(axis=0))
        seen.assign_add(jnp.int32(x[0, 0] > 0))

    for inputs in batches(strategy):
        strategy.run(evaluate, (inputs,))
    assert float(total.value()) != 0


def moving_mean_of_its_own(strategy: Any) -> None:
    with strategy.scope():
        moving = dl.Variable(jnp.zeros(6), name="moving_mean")

    def update(inputs: Any) -> Any:
        moving.assign(0.9 * moving.value() + 0.1 * inputs[0].mean(axis=0))
        return inputs[0] - moving.value()

    for inputs in batches(strategy):
        strategy.run(update, (inputs,))


def apart_then_averaged(strategy: Any) -> None:
    """Local SGD: replicas train apart for two steps, then average their weights."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def train_step(inputs: Any) -> None:
        x, y = inputs
        grads = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel.value())
        kernel.assign_sub(0.1 * grads)

    def average() -> None:
        kernel.assign(reduce("MEAN", kernel.value()))

    for number, inputs in enumerate(batches(strategy)):
        strategy.run(train_step, (inputs,))
        if number % 2:
            strategy.run(average)


# --- functional states ---------------------------------------------------------------------------


def functional(strategy: Any, combine: Callable[[Any], Any], tx: Any) -> None:
    """A pytree of parameters and Optax's state, passed through the steps."""
    params = start()
    state = strategy.replicate((params, tx.init(params)))

    def train_step(state: Any, x: Any, y: Any) -> Any:
        params, opt_state = state
        loss, grads = jax.value_and_grad(mean_loss)(params, x, y)
        updates, opt_state = tx.update(combine(grads), opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    for x, y in batches(strategy):
        state, _ = strategy.run(train_step, (state, x, y))


# --- random numbers ------------------------------------------------------------------------------


def dropout(strategy: Any, key_of: Callable[[Any], Any]) -> None:
    """Dropout on the input, by hand."""
    state = strategy.replicate(start())

    def train_step(params: Any, batch: Any, key: Any) -> Any:
        x, y = batch
        keep = jax.random.bernoulli(key_of(key), 0.8, x.shape)
        grads = jax.grad(mean_loss)(params, jnp.where(keep, x / 0.8, 0.0), y)
        return descend(params, reduce("MEAN", grads))

    key = jax.random.PRNGKey(0)
    for batch in batches(strategy):
        key, now = jax.random.split(key)
        state = strategy.run(train_step, (state, batch, now))


def shared_noise(strategy: Any) -> None:
    """A random projection, which must be the same on all replicas."""
    state = strategy.replicate(start())

    def train_step(params: Any, batch: Any, key: Any) -> Any:
        x, y = batch
        x = x + 0 * (x @ jax.random.normal(key, (6, 16))).sum()
        return descend(params, reduce("MEAN", jax.grad(mean_loss)(params, x, y)))

    for number, batch in enumerate(batches(strategy)):
        state = strategy.run(train_step, (state, batch, jax.random.key(number)))


def whole_batches(strategy: Any) -> None:
    """Passes NumPy batches to run, which every replica receives whole."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def train_step(images: Any, targets: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((images @ w - targets) ** 2)

        value, grads = jax.value_and_grad(loss)(kernel.value())
        kernel.assign_sub(0.1 * reduce("MEAN", grads))
        return value

    for number in range(STEPS):
        rows = slice(24 * number, 24 * number + 24)
        strategy.run(train_step, args=(X[rows], Y[rows]))


def whole_but_sliced(strategy: Any) -> None:
    """Every replica receives the whole batch and takes its own part of it."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def train_step(x: Any, y: Any) -> None:
        number = dl.get_replica_context().replica_id_in_sync_group
        x, y = (jax.lax.dynamic_slice_in_dim(part, number * 12, 12) for part in (x, y))
        grads = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel.value())
        kernel.assign_sub(0.1 * reduce("MEAN", grads))

    for number in range(STEPS):
        rows = slice(24 * number, 24 * number + 24)
        strategy.run(train_step, args=(X[rows], Y[rows]))


# --- Flax NNX, other strategies ------------------------------------------------------------------


def merged(strategy: Any) -> None:
    """The optimizer of TensorFlow's libraries: a merge_call that updates each copy."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def apply(strategy: Any, grads: Any) -> None:
        grads = strategy.extended.reduce_to("MEAN", grads, kernel)
        strategy.extended.update(kernel, lambda v, g: v.assign_sub(0.1 * g), args=(grads,))

    def train_step(inputs: Any) -> None:
        x, y = inputs
        grads = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel.value())
        dl.get_replica_context().merge_call(apply, args=(grads,))

    for inputs in batches(strategy):
        strategy.run(train_step, (inputs,))


SGD, MOMENTUM = optax.sgd(0.1), optax.sgd(0.1, momentum=0.9)
MEAN, NOT = partial(reduce, "MEAN"), (lambda grads: grads)
Made = Callable[[], None]

WRONG: dict[str, tuple[Made, str, str]] = {
    "never reduced": (
        lambda: with_variables(mirrored(), local), "drifting_copies", "variable kernel"
    ),
    "moving mean": (
        lambda: moving_mean_of_its_own(mirrored(4)), "drifting_copies", "variable moving_mean"
    ),
    "functional": (lambda: functional(mirrored(), NOT, SGD), "drifting_copies", "state[0]["),
    "sum of means": (
        lambda: with_variables(mirrored(4), summed), "sum_of_means", "function train_step"
    ),
    "mean of unequal means": (
        lambda: with_variables(mirrored(), averaged, size=3),
        "mean_of_unequal_means",
        "function train_step",
    ),
    "one mask": (
        lambda: dropout(mirrored(4), lambda key: key),
        "same_random_numbers",
        "function train_step",
    ),
    "whole batches": (
        lambda: whole_batches(mirrored(4)), "same_examples", "argument images"
    ),
}  # fmt: skip

RIGHT: dict[str, Made] = {
    "averaged": lambda: with_variables(mirrored(), averaged),
    "weighed by counts": lambda: with_variables(mirrored(4), weighed_by_counts),
    "metrics": lambda: with_metrics(mirrored(4)),
    "averaged now and then": lambda: apart_then_averaged(mirrored()),
    "merge_call": lambda: merged(mirrored()),
    "functional": lambda: functional(mirrored(4), MEAN, MOMENTUM),
    "own keys": lambda: dropout(mirrored(4), own_key),
    "shared projection": lambda: shared_noise(mirrored()),
    "own part of whole batches": lambda: whole_but_sliced(mirrored()),
}


# --- datasets ------------------------------------------------------------------------------------


def classifier(strategy: Any, distributed: Any, *, trains: bool = True) -> None:
    """Logistic regression on batches of `(x, label)`."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 4)), name="kernel")

    def train_step(inputs: Any) -> None:
        x, label = inputs

        def loss(kernel: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(x @ kernel, label).mean()

        kernel.assign_sub(0.1 * reduce("MEAN", jax.grad(loss)(kernel.value())))

    def evaluate(inputs: Any) -> Any:
        x, label = inputs
        return (jnp.argmax(x @ kernel.value(), axis=-1) == label).sum()

    for inputs in distributed:
        strategy.run(train_step if trains else evaluate, (inputs,))


def labelled(labels: np.ndarray, *, shuffle: bool = False) -> dl.data.Dataset:
    x = np.random.default_rng(3).normal(size=(len(labels), 6)).astype(np.float32)
    dataset = dl.data.Dataset.from_tensor_slices((x, labels))
    return dataset.shuffle(len(labels), seed=0) if shuffle else dataset


def by_label(dataset: dl.data.Dataset, *, trains: bool = True) -> None:
    """A dataset of its own for each of two epochs, made by one line."""
    strategy = mirrored()
    epochs = (strategy.experimental_distribute_dataset(dataset.batch(8)) for _ in range(2))
    classifier(strategy, chain.from_iterable(epochs), trains=trains)


def for_each_replica(make: Callable[[Any], dl.data.Dataset]) -> None:
    strategy = mirrored(4)
    per_replica = dl.InputOptions(
        experimental_replication_mode=dl.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    distributed = strategy.distribute_datasets_from_function(make, per_replica)
    classifier(strategy, distributed)


SORTED = np.repeat(np.arange(4, dtype=np.int32), 24)
RARE = (np.arange(96) % 32 == 5).astype(np.int32)

WRONG |= {
    "sorted": (lambda: by_label(labelled(SORTED)), "sorted_examples", "dataset at wrong_"),
    "one pipeline for each replica": (
        lambda: for_each_replica(lambda _: labelled(RARE, shuffle=True).batch(8)),
        "same_examples",
        "dataset at wrong_",
    ),
}  # fmt: skip

RIGHT |= {
    "shuffled": lambda: by_label(labelled(SORTED, shuffle=True)),
    "sorted, evaluated": lambda: by_label(labelled(SORTED), trains=False),
    "rare label": lambda: by_label(labelled(RARE)),
    "a part for each replica": lambda: for_each_replica(
        lambda context: (
            labelled(RARE).shard(context.num_input_pipelines, context.input_pipeline_id).batch(8)
        )
    ),
}


# --- tables --------------------------------------------------------------------------------------


def looked_up(strategy: Any, rows: int, *, whole: bool) -> None:
    with strategy.scope():
        table = dl.Variable(jnp.zeros((rows, 16)), name="table")

    def train_step(ids: Any) -> None:
        if whole:
            grads = reduce("MEAN", jax.grad(lambda t: (t[ids] ** 2).mean())(table.value()))
            table.assign_sub(0.1 * grads)
            return
        found = table.value()[ids]
        grads = jax.grad(lambda t: (t**2).mean())(found)
        grads, used = dl.get_replica_context().all_gather((grads, ids), axis=0)
        table.assign(table.value().at[used].add(-0.1 * grads))

    dataset = dl.data.Dataset.range(64).map(lambda n: n % 20).batch(8)
    for ids in strategy.experimental_distribute_dataset(dataset):
        strategy.run(train_step, (ids,))
