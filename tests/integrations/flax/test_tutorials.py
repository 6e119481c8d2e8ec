"""The steps of Flax's and Optax's tutorials, unchanged but for the strategy's lines."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training import train_state

import distlab as dl
from distlab import events
from tests.listening import listening

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(32, 6, 6, 1)).astype(np.float32)
LABELS = (IMAGES.mean((1, 2, 3)) > 0).astype(np.int32)


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])


def batches(epochs: int) -> dl.data.Dataset:
    columns = {"image": IMAGES, "label": LABELS}
    return dl.data.Dataset.from_tensor_slices(columns).batch(16).repeat(epochs)


class CNN(nnx.Module):
    """The model of the MNIST tutorial of Flax NNX, smaller."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 4, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm1 = nnx.BatchNorm(4, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=0.025)
        self.avg_pool = functools.partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))
        self.linear1 = nnx.Linear(36, 2, rngs=rngs)

    def __call__(self, x: Any, rngs: nnx.Rngs | None = None) -> jax.Array:
        x = self.avg_pool(nnx.relu(self.batch_norm1(self.dropout1(self.conv1(x), rngs=rngs))))
        return self.linear1(x.reshape(x.shape[0], -1))


def test_the_mnist_tutorial_of_nnx(strategy: dl.Strategy) -> None:
    model = CNN(rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(0.02, 0.9), wrt=nnx.Param)
    multi_metric: Any = nnx.MultiMetric
    metrics = multi_metric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    rngs = nnx.Rngs(1)

    def loss_fn(model: CNN, rngs: nnx.Rngs, batch: Any) -> tuple[jax.Array, jax.Array]:
        logits = model(batch["image"], rngs)
        loss = optax.softmax_cross_entropy_with_integer_labels(
            logits=logits, labels=batch["label"]
        ).mean()
        return loss, logits

    def train_step(model: CNN, optimizer: Any, metrics: Any, rngs: nnx.Rngs, batch: Any) -> None:
        grad_fn = nnx.value_and_grad(loss_fn, has_aux=True)
        (loss, logits), grads = grad_fn(model, rngs, batch)
        grads = dl.get_replica_context().all_reduce("MEAN", grads)
        metrics.update(loss=loss, logits=logits, labels=batch["label"])
        optimizer.update(model, grads)

    def eval_step(model: CNN, metrics: Any, rngs: nnx.Rngs, batch: Any) -> None:
        loss, logits = loss_fn(model, rngs, batch)
        metrics.update(loss=loss, logits=logits, labels=batch["label"])

    history = []
    for _ in range(8):
        model.train()  # type: ignore[no-untyped-call]
        for batch in strategy.experimental_distribute_dataset(batches(1)):
            strategy.run(train_step, args=(model, optimizer, metrics, rngs, batch))
        metrics.reset()
        model.eval()  # type: ignore[no-untyped-call]
        for batch in strategy.experimental_distribute_dataset(batches(1)):
            strategy.run(eval_step, args=(model, metrics, rngs, batch))
        history.append({name: float(value) for name, value in metrics.compute().items()})
        metrics.reset()
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    correct = (model(jnp.asarray(IMAGES)).argmax(1) == LABELS).mean()
    assert history[-1]["accuracy"] == pytest.approx(float(correct))
    assert int(rngs.default.count[...]) == 16


class MLP(nn.Module):
    """A Linen model."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(2)(nn.relu(nn.Dense(8)(x.reshape(x.shape[0], -1))))


def test_the_train_state_tutorial_of_linen(strategy: dl.Strategy) -> None:
    module = MLP()
    params = module.init(jax.random.key(0), jnp.ones([1, 6, 6, 1]))["params"]
    create: Any = train_state.TrainState.create
    first = create(apply_fn=module.apply, params=params, tx=optax.sgd(0.1, 0.9))

    def train_step(state: Any, batch: Any, reduce: Any = lambda grads: grads) -> Any:
        def loss_fn(params: Any) -> jax.Array:
            logits = state.apply_fn({"params": params}, batch["image"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

        grads = reduce(jax.grad(loss_fn)(state.params))
        return state.apply_gradients(grads=grads)

    def replica_step(state: Any, batch: Any) -> Any:
        means = functools.partial(dl.get_replica_context().all_reduce, "MEAN")
        return jax.tree.map(dl.Mirrored, train_step(state, batch, means))

    state, alone = first, first
    with listening() as heard:
        for batch in strategy.experimental_distribute_dataset(batches(2)):
            state = strategy.run(replica_step, args=(state, batch))
    jitted = jax.jit(train_step)
    for one in batches(2):
        alone = jitted(alone, one)
    assert len(heard.of(events.Compile)) == 1
    assert int(strategy.experimental_local_results(state)[0].step) == 4
    mine = strategy.experimental_local_results(state)[3].params
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_gradient_accumulation_and_a_schedule_of_optax(strategy: dl.Strategy) -> None:
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 8)
    optimizer = optax.MultiSteps(optax.adam(schedule), every_k_schedule=2)
    params = {"w": jnp.zeros((36, 2)), "b": jnp.zeros(2)}

    def loss(params: Any, batch: Any) -> jax.Array:
        logits = batch["image"].reshape(-1, 36) @ params["w"] + params["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    def step(params: Any, state: Any, batch: Any, reduce: Any = lambda grads: grads) -> Any:
        grads = reduce(jax.grad(loss)(params, batch))
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def replica_step(params: Any, state: Any, batch: Any) -> Any:
        means = functools.partial(dl.get_replica_context().all_reduce, "MEAN")
        return jax.tree.map(dl.Mirrored, step(params, state, batch, means))

    mine: Any = (params, optimizer.init(params))
    alone: Any = (params, optimizer.init(params))
    for batch in strategy.experimental_distribute_dataset(batches(4)):
        mine = strategy.run(replica_step, args=(*mine, batch))
    jitted = jax.jit(step)
    for one in batches(4):
        alone = jitted(*alone, one)
    local = strategy.experimental_local_results(mine)[1]
    assert int(local[1].gradient_step) == 4
    for a, b in zip(jax.tree.leaves(local[0]), jax.tree.leaves(alone[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert float(loss(local[0], {"image": IMAGES, "label": LABELS})) < 0.69
