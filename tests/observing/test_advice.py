"""Advice on observed functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl


def causes(recorder: Any) -> list[tuple[str, str, str]]:
    return [(one.cause, one.subject, one.remedy) for one in dl.advice.advise(recorder.ring)]


def test_large_gradients_and_activations_of_a_mesh_are_meant(recorder: Any) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))

    def loss_of(w: Any, x: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"]) ** 2)

    @dl.observe
    @jax.jit
    def step(w: Any, x: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(w, x)
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, gradients), loss

    specs = {"in": P(None, "model"), "out": P("model")}
    w = {n: jax.device_put(np.ones((512, 1024)), NamedSharding(mesh, s)) for n, s in specs.items()}
    w["out"] = w["out"].T
    x = jax.device_put(np.ones((1024, 512)), NamedSharding(mesh, P("data")))
    for _ in range(10):
        w, _ = step(w, x)
    found = causes(recorder)
    assert not {"large_reduction", "collective_in_loop"} & {cause for cause, _, _ in found}


def test_a_placement_that_changes_at_each_call_is_named(recorder: Any) -> None:
    devices = jax.devices()
    step = dl.observe(jax.jit(lambda x: x * 2), name="double")
    for device in devices:
        step(jax.device_put(np.ones(4, np.float32), device))
    ((_, subject, remedy),) = [one for one in causes(recorder) if one[0] == "recompilation"]
    assert subject == "argument x"
    assert "out_shardings=" in remedy
