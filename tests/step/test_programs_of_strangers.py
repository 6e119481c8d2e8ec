"""Programs in the idiom of JAX's libraries."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import distlab as dl
from distlab.errors import ShardingError

DATA = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
LABELS = (DATA.sum(1) > 0).astype(np.int32)


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def _batches(strategy: dl.Strategy, epochs: int = 3) -> Any:
    dataset = dl.data.Dataset.from_tensor_slices((DATA, LABELS)).batch(16).repeat(epochs)
    return strategy.experimental_distribute_dataset(dataset)


def _cross_entropy(logits: Any, labels: Any) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def test_an_equinox_mlp_trains_as_alone(strategy: dl.Strategy) -> None:
    """The model, with its activation functions, is replicated, passed and returned as it is."""

    class Net(eqx.Module):
        layers: eqx.nn.MLP
        scale: float  # a leaf of the pytree that is no array
        repeats: int
        name: str = eqx.field(static=True)

        def __call__(self, x: jax.Array) -> jax.Array:
            repeated = [self.layers(x) * self.scale for _ in range(self.repeats)]
            return jnp.stack(repeated).sum(0)

    alone = Net(eqx.nn.MLP(6, 2, 8, 1, key=jax.random.key(0)), 0.5, 2, "net")
    optimizer = optax.adam(1e-2)

    def loss(model: Net, x: Any, y: Any) -> jax.Array:
        return _cross_entropy(jax.vmap(model)(x), y)

    def step(model: Net, state: Any, batch: Any, train: bool) -> Any:
        value, grads = eqx.filter_value_and_grad(loss)(model, *batch)
        if train:
            grads = dl.get_replica_context().all_reduce("MEAN", eqx.filter(grads, eqx.is_array))
            updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
            model = eqx.apply_updates(model, updates)
        return model, state, value

    model = strategy.replicate(alone)
    state = strategy.replicate(optimizer.init(eqx.filter(alone, eqx.is_array)))
    assert model.layers.activation is alone.layers.activation
    for batch in _batches(strategy):
        model, state, _ = strategy.run(step, args=(model, state, batch, True))
        assert isinstance(model, Net)

    alone_state = optimizer.init(eqx.filter(alone, eqx.is_array))
    gradient = eqx.filter_jit(eqx.filter_grad(loss))
    for _ in range(3):
        grads = eqx.filter(gradient(alone, DATA, LABELS), eqx.is_array)
        updates, alone_state = optimizer.update(grads, alone_state, eqx.filter(alone, eqx.is_array))
        alone = eqx.apply_updates(alone, updates)
    mine = strategy.experimental_local_results(model)[-1]
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(alone), strict=True):
        if eqx.is_array(a):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)
    assert (mine.name, mine.scale, mine.repeats) == ("net", 0.5, 2)
    assert mine.layers.activation is alone.layers.activation


def test_a_linen_train_state_trains_beside_an_nnx_metric(
    strategy: dl.Strategy,
) -> None:
    class Classifier(nn.Module):
        features: int

        @nn.compact
        def __call__(self, x: jax.Array, train: bool) -> jax.Array:
            x = nn.Dense(self.features)(x)
            x = nn.Dropout(0.5, deterministic=not train)(x)
            return nn.Dense(2)(nn.relu(x))

    model = Classifier(8)
    params = model.init(jax.random.key(0), DATA[:1], train=False)["params"]
    create: Any = TrainState.create
    state = create(apply_fn=model.apply, params=params, tx=optax.sgd(0.1))

    def step(state: Any, batch: Any, train: bool, model: Classifier) -> Any:
        x, y = batch

        def loss(params: Any) -> jax.Array:
            rngs = {"dropout": jax.random.key(1)} if train else {}
            return _cross_entropy(model.apply({"params": params}, x, train, rngs=rngs), y)

        value, grads = jax.value_and_grad(loss)(state.params)
        if train:
            grads = dl.get_replica_context().all_reduce("MEAN", grads)
            state = state.apply_gradients(grads=grads)
        return state, value

    placed = strategy.replicate(state)
    losses = []
    for batch in _batches(strategy):
        _, value = strategy.run(step, args=(placed, batch, False, model))
        losses.append(float(strategy.reduce("MEAN", value, axis=None)))
        placed, _ = strategy.run(step, args=(placed, batch, True, model))
    assert losses[-1] < losses[0]
    assert int(strategy.experimental_local_results(placed)[0].step) == 3

    metric: Any = nnx.MultiMetric
    held = {"state": placed, "metrics": metric(loss=nnx.metrics.Average())}
    strategy.run(lambda held, y: held["metrics"].update(values=y), args=(held, batch[1]))
    assert float(held["metrics"].compute()["loss"]) == pytest.approx(LABELS.mean())


@pytest.mark.slow
def test_a_batch_divided_by_the_user_trains_as_a_datasets() -> None:
    """Raw JAX's input pipeline: arrays over a mesh, from device_put and from each process."""
    strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    with strategy.scope():
        weights = dl.Variable(jnp.zeros((6, 2)))

    def step(batch: Any) -> Any:
        x, y = batch
        value, grads = jax.value_and_grad(lambda w: _cross_entropy(x @ w, y))(weights.value())
        weights.assign_sub(dl.get_replica_context().all_reduce("MEAN", grads))
        return value

    def train(batches: Any) -> list[float]:
        weights.assign(jnp.zeros((6, 2)))
        results = [strategy.run(step, args=(batch,)) for batch in batches]
        return [float(strategy.reduce("MEAN", result, axis=None)) for result in results]

    expected = train(_batches(strategy))
    assert expected[-1] < expected[0]
    by_device_put = [jax.device_put((DATA, LABELS), sharding)] * 3
    np.testing.assert_allclose(train(by_device_put), expected, rtol=1e-6)
    local = functools.partial(jax.make_array_from_process_local_data, sharding)
    by_process = [(local(DATA), local(LABELS))] * 3
    np.testing.assert_allclose(train(by_process), expected, rtol=1e-6)

    fsdp = jax.device_put(
        np.zeros((6, 8), np.float32), NamedSharding(mesh, PartitionSpec(None, "data"))
    )
    with pytest.raises(ShardingError, match="in their order along its first axis"):
        strategy.run(lambda w, x: x @ w, args=(fsdp, DATA))


def test_optax_with_a_schedule_and_static_options(strategy: dl.Strategy) -> None:
    """A functional loop: nested dicts of parameters, as Haiku's; training and depth are static."""
    params = {
        f"linear_{n}": {"w": np.eye(6, dtype=np.float32) * 0.5, "b": np.zeros(6, np.float32)}
        for n in range(2)
    }
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 9))
    )

    def forward(params: Any, x: jax.Array, depth: int) -> jax.Array:
        for n in range(depth):
            layer = params[f"linear_{n}"]
            x = jnp.tanh(x @ layer["w"] + layer["b"])
        return x[:, :2]

    def step(params: Any, state: Any, batch: Any, tx: Any, *, depth: int, training: bool) -> Any:
        x, y = batch
        loss, grads = jax.value_and_grad(lambda p: _cross_entropy(forward(p, x, depth), y))(params)
        if not training:
            return loss
        grads = dl.get_replica_context().all_reduce("MEAN", grads)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    options = dl.RunOptions(static_argnames=("depth",))
    placed, state = strategy.replicate(params), strategy.replicate(tx.init(params))
    losses = []
    for batch in _batches(strategy):
        call = functools.partial(strategy.run, step, options=options)
        loss = call((placed, state, batch, tx), {"depth": 2, "training": False})
        losses.append(float(strategy.reduce("MEAN", loss, axis=None)))
        placed, state = call((placed, state, batch, tx), {"depth": 2, "training": True})
    assert losses[2] < losses[1] < losses[0]
    counts = optax.tree.get_all_with_path(strategy.experimental_local_results(state)[0], "count")
    assert {int(count) for _, count in counts} == {3}
