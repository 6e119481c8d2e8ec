"""Training programs of plain JAX in the style of published examples; `observe` is their added line.

Each takes `observe` and the number of steps, and returns its losses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Observe = Callable[[Any], Any]

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(32, 16)).astype(np.float32)
Y = _RNG.integers(0, 4, 32)
TOKENS = _RNG.integers(0, 32, (8, 16))


def flax_data_parallel(observe: Observe, steps: int) -> list[float]:
    """Flax' Linen examples: a `TrainState` whole on each device, batches divided."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    model = nn.Sequential([nn.Dense(32), nn.relu, nn.Dense(4)])
    params = model.init(jax.random.key(0), X)
    made: Any = TrainState
    state = made.create(apply_fn=model.apply, params=params, tx=optax.adam(0.01))
    state = jax.device_put(state, NamedSharding(mesh, P()))

    @observe
    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss_fn(params: Any) -> jax.Array:
            logits = state.apply_fn(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

    x, y = jax.device_put((X, Y), NamedSharding(mesh, P("data")))
    losses = []
    for _ in range(steps):
        state, loss = train_step(state, x, y)
        losses.append(float(loss))
    return losses


def optax_example(observe: Observe, steps: int) -> list[float]:
    """Optax' getting-started example: NumPy batches, a dict of parameters, one device."""
    params = {"w": jnp.zeros((16, 4)), "b": jnp.zeros(4)}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01))
    opt_state = optimizer.init(params)

    @jax.jit
    def step(params: Any, opt_state: Any, batch: Any) -> Any:
        def loss_fn(params: Any) -> jax.Array:
            logits = batch["x"] @ params["w"] + params["b"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    step = observe(step)
    losses = []
    for _ in range(steps):
        params, opt_state, loss = step(params, opt_state, {"x": X, "y": Y})
        losses.append(float(loss))
    return losses


def tensor_parallel(observe: Observe, steps: int) -> list[float]:
    """An exercise of the scaling book: an MLP over `X` and `Y`, with an explicit mesh."""
    explicit = (jax.sharding.AxisType.Explicit,) * 2
    mesh = jax.make_mesh((4, 2), ("X", "Y"), axis_types=explicit)
    with jax.set_mesh(mesh):
        w_in = jax.device_put(np.full((16, 64), 0.1, np.float32), P(None, "Y"))
        w_out = jax.device_put(np.full((64, 16), 0.1, np.float32), P("Y", None))
        x = jax.device_put(X, P("X", None))

        def loss_fn(w: Any, x: jax.Array) -> jax.Array:
            hidden = jax.nn.gelu(jnp.einsum("bd,df->bf", x, w[0]))
            out = jnp.einsum("bf,fd->bd", hidden, w[1], out_sharding=P("X", None))
            return ((out - x) ** 2).mean()

        @jax.jit
        def step(w: Any, x: jax.Array) -> Any:
            loss, grads = jax.value_and_grad(loss_fn)(w, x)
            return jax.tree.map(lambda a, g: a - 0.1 * g, w, grads), loss

        step, w, losses = observe(step), (w_in, w_out), []
        for _ in range(steps):
            w, loss = step(w, x)
            losses.append(float(loss))
    return losses


def nnx_sharding(observe: Observe, steps: int) -> list[float]:
    """The tutorial of Flax NNX on several devices: a module changed in place, two axes."""
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(16, 32, rngs=rngs), nnx.relu, nnx.Linear(32, 4, rngs=rngs))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    def spec(array: jax.Array) -> NamedSharding:
        return NamedSharding(mesh, P(None, "model") if array.ndim == 2 else P())

    state = nnx.state((model, optimizer))
    nnx.update((model, optimizer), jax.tree.map(lambda a: jax.device_put(a, spec(a)), state))

    @observe
    @nnx.jit
    def train_step(model: Any, optimizer: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        def loss_fn(model: Any) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return loss

    x, y = jax.device_put((X, Y), NamedSharding(mesh, P("data")))
    return [float(train_step(model, optimizer, x, y)) for _ in range(steps)]


def equinox_parallel(observe: Observe, steps: int) -> list[float]:
    """Equinox' parallel example: shardings inside of the step, everything donated."""
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    divided, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())
    model = eqx.nn.MLP(16, 4, 32, 1, key=jax.random.key(0))
    optim = optax.sgd(0.1)
    opt_state = optim.init(eqx.filter(model, eqx.is_inexact_array))

    def compute_loss(model: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        logits = jax.vmap(model)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    @observe
    @eqx.filter_jit(donate="all-except-first")
    def train_step(batch: Any, model: Any, opt_state: Any) -> Any:
        model, opt_state = eqx.filter_shard((model, opt_state), whole)
        x, y = eqx.filter_shard(batch, divided)
        loss, grads = eqx.filter_value_and_grad(compute_loss)(model, x, y)
        updates, opt_state = optim.update(grads, opt_state)
        model, opt_state = eqx.filter_shard((eqx.apply_updates(model, updates), opt_state), whole)
        return model, opt_state, loss

    model, opt_state = eqx.filter_shard((model, opt_state), whole)
    batch = eqx.filter_shard((jnp.asarray(X), jnp.asarray(Y)), divided)
    losses = []
    for _ in range(steps):
        model, opt_state, loss = train_step(batch, model, opt_state)
        losses.append(float(loss))
    return losses


def pmap_program(observe: Observe, steps: int) -> list[float]:
    """The classic of `jax.pmap`: replicated parameters, gradients averaged by `pmean`."""
    count = jax.device_count()
    x, y = X.reshape(count, -1, 16), Y.reshape(count, -1)
    params = {"w": jnp.zeros((16, 4)), "b": jnp.zeros(4)}
    params = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), params)

    def update(params: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss_fn(params: Any) -> jax.Array:
            logits = x @ params["w"] + params["b"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = jax.lax.pmean(jax.value_and_grad(loss_fn)(params), "devices")
        return jax.tree.map(lambda a, g: a - 0.1 * g, params, grads), loss

    step = observe(jax.pmap(update, axis_name="devices"))
    losses = []
    for _ in range(steps):
        params, loss = step(params, x, y)
        losses.append(float(loss[0]))
    return losses


def shard_map_transformer(observe: Observe, steps: int) -> list[float]:
    """One block of a transformer in `shard_map`: heads over `model`, batches over `data`."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    width, heads, key = 32, 4, jax.random.key(0)
    shapes = {"embed": (32, width), "qkv": (3, heads, width, 8), "out": (heads, 8, width)}
    specs = {"embed": P(), "qkv": P(None, "model"), "out": P("model")}
    params = {
        name: 0.2 * jax.random.normal(jax.random.fold_in(key, n), shape)
        for n, (name, shape) in enumerate(shapes.items())
    }
    params = {n: jax.device_put(a, NamedSharding(mesh, specs[n])) for n, a in params.items()}

    def loss_fn(params: Any, tokens: jax.Array) -> jax.Array:
        h = params["embed"][tokens]
        q, k, v = jnp.einsum("btd,nhdk->nbhtk", h, params["qkv"])
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k) / 8**0.5
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        attended = jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ v
        out = jax.lax.psum(jnp.einsum("bhtk,hkd->btd", attended, params["out"]), "model")
        logits = (h + out) @ params["embed"].T
        loss = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
        return jax.lax.pmean(loss.mean(), "data")

    mapped = jax.shard_map(loss_fn, mesh=mesh, in_specs=(specs, P("data")), out_specs=P())

    @observe
    @jax.jit
    def step(params: Any, tokens: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(mapped)(params, tokens)
        return jax.tree.map(lambda a, g: a - 0.5 * g, params, grads), loss

    tokens = jax.device_put(TOKENS, NamedSharding(mesh, P("data")))
    losses = []
    for _ in range(steps):
        params, loss = step(params, tokens)
        losses.append(float(loss))
    return losses
