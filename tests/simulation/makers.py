"""Programs for any mesh: the names of its axes say which, so that one process compiles all."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

WIDE, ROWS = 64, 1024


def shaped(mesh: Mesh, *sizes: int, spec: Any = None, dtype: Any = "float32") -> Any:
    sharding = NamedSharding(mesh, spec or P())
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)


def loss(weights: Any, x: Any) -> Any:
    up, down = weights
    return jnp.mean((jnp.tanh(x @ up) @ down).astype("float32") ** 2)


def train_step(weights: Any, x: Any) -> Any:
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return tuple(w - w.dtype.type(0.1) * g for w, g in zip(weights, gradients, strict=True)), value


def annotated(mesh: Mesh, axis: str, *specs: Any, dtype: Any = "float32") -> Any:
    """Returns a step whose weights lie as specs say."""
    weights = tuple(shaped(mesh, WIDE, WIDE, spec=one, dtype=dtype) for one in specs)
    kept = tuple(NamedSharding(mesh, one) for one in specs), NamedSharding(mesh, P())
    x = shaped(mesh, ROWS, WIDE, spec=P(axis), dtype=dtype)
    return jax.jit(train_step, out_shardings=kept), (weights, x)


def by_hand(mesh: Mesh, axis: str, dtype: Any = "float32") -> Any:
    """Returns a step that gathers weights, and scatters the sums of their gradients."""

    def step(weights: Any, x: Any) -> Any:
        def whole(parts: Any) -> Any:
            return loss([lax.all_gather(one, axis, tiled=True) for one in parts], x)

        value, gradients = jax.value_and_grad(whole)(weights)
        new = tuple(w - g for w, g in zip(weights, gradients, strict=True))
        return new, lax.pmean(value, axis)

    specs = (P(axis), P(axis))
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(specs, P(axis)), out_specs=(specs, P()), check_vma=False
    )
    weights = tuple(shaped(mesh, WIDE, WIDE, spec=P(axis), dtype=dtype) for _ in range(2))
    return jax.jit(mapped), (weights, shaped(mesh, ROWS, WIDE, spec=P(axis), dtype=dtype))


def ring(mesh: Mesh) -> Any:
    """Returns a step with a message for each device: another program on each mesh."""
    size = mesh.shape["ring"]

    def step(x: Any) -> Any:
        for _ in range(size - 1):
            x = x + lax.ppermute(x, "ring", [(n, (n + 1) % size) for n in range(size)])
        return x

    mapped = jax.shard_map(step, mesh=mesh, in_specs=P("ring"), out_specs=P("ring"))
    return jax.jit(mapped), (shaped(mesh, WIDE, spec=P("ring")),)


def make(mesh: Mesh) -> Any:
    match mesh.axis_names:
        case ("data", "model"):
            return annotated(mesh, "data", P(None, "model"), P("model"))
        case ("parts",):
            return by_hand(mesh, "parts")
        case ("half",):
            return by_hand(mesh, "half", "bfloat16")
        case ("gathered",):
            return annotated(mesh, "gathered", P("gathered"), P("gathered"))
        case ("ring",):
            return ring(mesh)
        case ("stages",) if mesh.size < 16:
            raise ValueError("there must be 16 stages")
        case (axis,):
            return annotated(mesh, axis, P(), P())
    raise AssertionError(mesh)
