"""Seven programs on a mesh of eight devices, in the idioms that people publish."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab.programs.report import ProgramReport


class Case(NamedTuple):
    """A function that is not yet compiled, and shapes of its arguments on a mesh."""

    fn: Any
    args: tuple[Any, ...]


@functools.cache
def reported(make: Callable[[], Case]) -> ProgramReport:
    """Returns the program of one of the functions below, compiled once for all tests."""
    case = make()
    return dl.program(case.fn, *case.args)


def grid(**axes: int) -> Mesh:
    """Returns a mesh of the first devices."""
    devices = np.array(jax.devices()[: math.prod(axes.values())])
    return Mesh(devices.reshape(tuple(axes.values())), tuple(axes))


def shaped(mesh: Mesh, specs: Any, shapes: Any) -> Any:
    """Returns shapes placed by specs; one spec may stand for a whole tree."""
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=_is_spec)
    prefix = jax.tree.broadcast(shardings, shapes) if _is_spec(specs) else shardings
    return jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), shapes, prefix
    )


def _is_spec(one: Any) -> bool:
    return isinstance(one, P)


def array(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """Returns the shape of an array."""
    return jax.ShapeDtypeStruct(sizes, dtype)


MLP = {"w1": array(256, 512), "b1": array(512), "w2": array(512, 16), "b2": array(16)}
BATCH = (array(128, 256), array(128, dtype=jnp.int32))


def mlp_loss(params: Any, x: Any, labels: Any) -> Any:
    """Returns the mean loss of a network with one hidden layer."""
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    logits = hidden @ params["w2"] + params["b2"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def trained(mesh: Mesh, spec: dict[str, P], loss: Callable[..., Any] = mlp_loss) -> Case:
    """Trains the network with Adam, its parameters and moments placed by `spec`."""
    adam = optax.adam(1e-3)

    def step(state: Any, batch: Any) -> Any:
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        updates, moments = adam.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    state = jax.eval_shape(lambda p: (p, adam.init(p)), MLP)
    moments = optax.ScaleByAdamState(count=P(), mu=spec, nu=spec)
    state = shaped(mesh, (spec, (moments, optax.EmptyState())), state)
    kept = jax.tree.map(lambda a: a.sharding, state)
    fn = jax.jit(step, donate_argnums=0, out_shardings=(kept, NamedSharding(mesh, P())))
    return Case(fn, (state, shaped(mesh, P("data"), BATCH)))


def data_parallel() -> Case:
    """Divides the batch alone."""
    return trained(grid(data=8), dict.fromkeys(MLP, P()))


def tensor_parallel() -> Case:
    """Divides the hidden layer along a second axis."""
    spec = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}
    return trained(grid(data=4, model=2), spec)


def fsdp() -> Case:
    """Divides parameters and moments along the batch's axis, by annotation."""
    return trained(grid(data=8), dict.fromkeys(MLP, P("data")))


def fsdp_by_hand() -> Case:
    """Gathers parameters in the loss, so that their gradients are scattered."""
    mesh = grid(data=8)
    spec = {"w1": P("data"), "b1": P("data"), "w2": P("data"), "b2": P()}

    def loss(params: Any, x: Any, labels: Any) -> Any:
        whole = {
            name: one if spec[name] == P() else lax.all_gather(one, "data", tiled=True)
            for name, one in params.items()
        }
        return mlp_loss(whole, x, labels)

    def step(params: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        gradients = {
            name: lax.pmean(one, "data") if spec[name] == P() else one / 8
            for name, one in gradients.items()
        }
        params = {name: params[name] - 1e-2 * gradients[name] for name in params}
        return params, lax.pmean(value, "data")

    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(spec, P("data")),
        out_specs=(spec, P()),
        check_vma=False,
    )
    args = shaped(mesh, spec, MLP), shaped(mesh, P("data"), BATCH)
    return Case(jax.jit(mapped, donate_argnums=0), args)


def ring_attention() -> Case:
    """Sends keys and values around a ring, by shard_map."""
    mesh, heads, width = grid(data=2, seq=4), 4, 32

    def ring(query: Any, key: Any, value: Any) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            key, value, top, total, out = carry
            scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * width**-0.5
            new = jnp.maximum(top, scores.max(-1))
            weights, scale = jnp.exp(scores - new[..., None]), jnp.exp(top - new)
            out = out * scale[..., None] + jnp.einsum("bhqk,bkhd->bhqd", weights, value)
            key, value = lax.ppermute((key, value), "seq", [(i, (i + 1) % 4) for i in range(4)])
            return (key, value, new, total * scale + weights.sum(-1), out), None

        batch, length = query.shape[:2]
        rows = (batch, heads, length)
        start = (key, value, jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros((*rows, width)))
        (*_, total, out), _ = lax.scan(turn, start, None, length=4)
        return (out / total[..., None]).transpose(0, 2, 1, 3)

    spec = P("data", "seq")
    attend = jax.shard_map(ring, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False)

    def loss(params: Any, x: Any) -> Any:
        query, key, value = (jnp.einsum("bld,dhe->blhe", x, params[name]) for name in "qkv")
        return jnp.mean(jnp.einsum("blhe,hed->bld", attend(query, key, value), params["o"]) ** 2)

    def step(params: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda a, b: a - 0.1 * b, params, gradients), value

    size = heads * width
    params = dict.fromkeys("qkv", array(size, heads, width)) | {"o": array(heads, width, size)}
    args = shaped(mesh, P(), params), shaped(mesh, spec, array(4, 512, size))
    return Case(jax.jit(step, donate_argnums=0), args)


def pipeline() -> Case:
    """Moves microbatches from stage to stage, by shard_map."""
    mesh, micro, width = grid(stage=4, data=2), 8, 128

    def run(weight: Any, x: Any) -> Any:
        stage = lax.axis_index("stage")

        def tick(carry: Any, now: Any) -> Any:
            held, out = carry
            given = jnp.where(stage == 0, x[jnp.minimum(now, micro - 1)], held)
            made = jnp.tanh(given @ weight[0])
            done = jnp.clip(now - 3, 0, micro - 1)
            out = out.at[done].set(jnp.where((stage == 3) & (now >= 3), made, out[done]))
            return (lax.ppermute(made, "stage", [(0, 1), (1, 2), (2, 3)]), out), None

        start = jnp.zeros_like(x[0]), jnp.zeros_like(x)
        (_, out), _ = lax.scan(tick, start, jnp.arange(micro + 3))
        return lax.psum(jnp.where(stage == 3, out, 0.0), "stage")

    batch = P(None, "data")
    apply = jax.shard_map(
        run, mesh=mesh, in_specs=(P("stage"), batch), out_specs=batch, check_vma=False
    )

    def step(weight: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(lambda w: jnp.mean((apply(w, x) - y) ** 2))(weight)
        return weight - 0.1 * gradient, value

    x = shaped(mesh, batch, array(micro, 16, width))
    args = shaped(mesh, P("stage"), array(4, width, width)), x, x
    return Case(jax.jit(step, donate_argnums=0), args)


def expert_parallel() -> Case:
    """Sends tokens to the device of their expert and back."""
    mesh, tokens, width, hidden = grid(expert=8), 64, 64, 128
    room = 2 * tokens // 8

    def layer(params: Any, gate: Any, x: Any) -> Any:
        choice = jnp.argmax(x @ gate, -1)
        chance = jax.nn.softmax(x @ gate)[jnp.arange(tokens), choice]
        taken = jnp.cumsum(jax.nn.one_hot(choice, 8, dtype=jnp.int32), 0)
        place = taken[jnp.arange(tokens), choice] - 1
        sent = jnp.zeros((8, room, width)).at[choice, place].set(x, mode="drop")
        got = lax.all_to_all(sent, "expert", 0, 0, tiled=True).reshape(-1, width)
        made = jax.nn.relu(got @ params["up"][0]) @ params["down"][0]
        back = lax.all_to_all(made.reshape(8, room, width), "expert", 0, 0, tiled=True)
        return back.at[choice, place].get(mode="fill", fill_value=0.0) * chance[:, None]

    by = P("expert")
    apply = jax.shard_map(layer, mesh=mesh, in_specs=(by, P(), by), out_specs=by, check_vma=False)

    def step(params: Any, gate: Any, x: Any, y: Any) -> Any:
        def loss(params: Any, gate: Any) -> Any:
            return jnp.mean((apply(params, gate, x) - y) ** 2)

        value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(params, gate)
        return jax.tree.map(lambda a, b: a - 0.1 * b, (params, gate), gradients), value

    params = {"up": array(8, width, hidden), "down": array(8, hidden, width)}
    x = shaped(mesh, by, array(tokens * 8, width))
    args = shaped(mesh, by, params), shaped(mesh, P(), array(width, 8)), x, x
    return Case(jax.jit(step, donate_argnums=(0, 1)), args)
