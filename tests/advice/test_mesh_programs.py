"""Advice on programs of meshes: planted faults and their clean twins, which are not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab.advice import Advice
from tests.programs import meshes
from tests.programs.meshes import array, grid, shaped

DATA, BOTH, MODEL = P("data"), P(("data", "model")), P(None, "model")


def advised(fn: Any, *args: Any) -> list[Advice]:
    return dl.program(fn, *args).advice()


def causes(fn: Any, *args: Any) -> list[str]:
    return [one.cause for one in advised(fn, *args)]


def forward(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params[0]) @ params[1]


def loss(params: Any, x: Any) -> Any:
    return jnp.mean(forward(params, x) ** 2)


def in_a_loop(params: Any, x: Any) -> Any:
    return lax.scan(lambda h, _: (jnp.tanh(h @ params[0]), None), x, length=3)[0]


@pytest.mark.parametrize(
    ("fn", "x", "w", "v", "times"),
    [
        (jax.grad(loss), DATA, P(), P(), 2),
        (jax.grad(loss), P(), P(), P(), 8),
        (jax.grad(loss), P("model"), P(), P(), 4),
        (forward, P(), MODEL, P("model"), 4),
        (in_a_loop, DATA, P(), P(), 2),
        (jax.grad(loss), DATA, MODEL, P("model"), 1),
        (jax.grad(loss), BOTH, P(), P(), 1),
        (forward, BOTH, P(), P(), 1),
        (forward, DATA, MODEL, P("model"), 1),
        (in_a_loop, BOTH, P(), P(), 1),
    ],
)
def test_repeated_work_is_named_with_its_times(fn: Any, x: P, w: P, v: P, times: int) -> None:
    mesh, square = grid(data=4, model=2), array(256, 256)
    params = shaped(mesh, w, square), shaped(mesh, v, square)
    found = dl.program(jax.jit(fn), params, shaped(mesh, x, array(128, 256)))
    assert found.computed_times == pytest.approx(times, rel=0.03)
    advice = found.advice()
    assert [one.cause for one in advice] == ["repeated_work"] * (times > 1)
    assert all(one.evidence["computed_times"] == found.computed_times for one in advice)


def updated(specs: dict[str, P], moments: P | None = None, rows: int = 4096) -> Any:
    """Returns a training step of momentum, and its arguments; moments may be placed apart."""
    mesh = grid(data=4, model=2)
    sizes = {"table": (rows, 512), "w": (512, 512), "v": (512, 512)}

    def step(state: Any, x: Any) -> Any:
        params, velocity = state

        def value(params: Any) -> Any:
            hidden = lax.with_sharding_constraint(x @ params["w"], NamedSharding(mesh, DATA))
            out = jnp.tanh(hidden) @ params["v"]
            return jnp.mean(out**2) + jnp.mean(params["table"] ** 2)

        velocity = jax.tree.map(lambda m, g: 0.9 * m + g, velocity, jax.grad(value)(params))
        return (jax.tree.map(jnp.subtract, params, velocity), velocity)

    params = shaped(mesh, specs, {name: array(*size) for name, size in sizes.items()})
    other = specs if moments is None else dict.fromkeys(specs, moments)
    velocity = shaped(mesh, other, {name: array(*size) for name, size in sizes.items()})
    state = params, velocity
    kept = jax.tree.map(lambda a: a.sharding, state)
    args = state, shaped(mesh, DATA, array(256, 512))
    return jax.jit(step, donate_argnums=0, out_shardings=kept), *args


@pytest.mark.parametrize(
    ("specs", "moments", "rows", "names"),
    [
        ((P(), DATA, DATA), DATA, 4096, ["state[0]['table']"]),
        ((DATA, DATA, P()), None, 512, ["state[0]['v']", "state[1]['v']"]),
        ((DATA, DATA, DATA), P(), 1024, [f"state[1]['{name}']" for name in ("table", "v", "w")]),
        ((P(None, "model"), DATA, DATA), None, 1024, ["state[0]['table']", "state[1]['table']"]),
        ((DATA, P(), DATA), None, 1024, ["state[0]['w']", "state[1]['w']"]),
        ((P(), P(), P()), None, 4096, []),  # data parallel
        ((DATA, DATA, DATA), None, 4096, []),
        ((DATA, DATA, DATA), P("model"), 64, []),
        ((P(), DATA, DATA), DATA, 64, []),  # below a megabyte
        ((P(("data", "model")), DATA, DATA), None, 4096, []),
    ],
)
def test_arrays_left_whole_are_named(
    specs: tuple[P, ...], moments: P | None, rows: int, names: list[str]
) -> None:
    made = updated(dict(zip(("table", "w", "v"), specs, strict=True)), moments, rows)
    found = [one for one in advised(*made) if one.cause == "undivided_array"]
    assert [bool(found)] == [bool(names)]
    for name in names:
        assert name in found[0].text


def test_arrays_that_are_dropped_or_divided_already_are_not_named() -> None:
    mesh = grid(data=4, model=2)

    def step(state: Any, other: Any) -> Any:
        return jax.tree.map(lambda one: 2 * one, state)

    sizes = {"w": (2048, 1024), "v": (1024, 1024), "rows": (4, 1048577)}
    specs = {"w": P("data", "model"), "v": P("data", "model"), "rows": DATA}
    state = shaped(mesh, specs, {name: array(*size) for name, size in sizes.items()})
    kept = jax.tree.map(lambda a: a.sharding, state)
    dropped = shaped(mesh, P(), array(1024, 1024))
    assert "undivided_array" not in causes(jax.jit(step, out_shardings=kept), state, dropped)


ROUND = P("y", None, "x")
ACROSS = P(None, ("x", "y"), None)


@pytest.mark.parametrize(
    ("before", "after", "bad"),
    [
        (ROUND, ACROSS, True),
        (P("x", None, "y"), ACROSS, True),
        (ACROSS, ROUND, True),
        (P(None, "x", "y"), P(("x", "y")), True),
        (P(("y", "x")), P(None, "x", "y"), True),
        (P("x", "y"), P("y", "x"), False),
        (P("x"), P(None, "x"), False),
        (P("x", "y"), P("x"), False),
        (P("x"), P(), False),
        (ROUND, ROUND, False),
    ],
)
def test_gathers_that_are_sliced_are_named(before: P, after: P, bad: bool) -> None:
    mesh = grid(x=4, y=2)

    def moved(x: Any) -> Any:
        return 2 * lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, after))

    found = advised(jax.jit(moved), shaped(mesh, before, array(32, 32, 32)))
    assert [one.cause for one in found] == ["sliced_gather"] * bad
    if bad:
        assert found[0].evidence["bytes"] == 131_072
        assert found[0].source.startswith("test_mesh_programs.py:")


def fsdp(rows: int, width: int, *, constrained: bool, act: Callable[[Any], Any] = jnp.tanh) -> Any:
    mesh = grid(data=8)
    by_rows = NamedSharding(mesh, DATA)

    def step(params: Any, x: Any) -> Any:
        def value(params: Any) -> Any:
            hidden = x @ params["up"]
            if constrained:
                hidden = lax.with_sharding_constraint(hidden, by_rows)
            return jnp.mean((act(hidden) @ params["down"]) ** 2)

        gradients = jax.grad(value)(params)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)

    params = shaped(mesh, DATA, {"up": array(width, width), "down": array(width, width)})
    kept = jax.tree.map(lambda a: a.sharding, params)
    x = shaped(mesh, DATA, array(rows, width))
    return jax.jit(step, donate_argnums=0, out_shardings=kept), params, x


@pytest.mark.parametrize(
    ("rows", "width", "act"),
    [
        (512, 1024, jnp.tanh),
        (384, 1024, jnp.tanh),
        (256, 512, jax.nn.gelu),
        (256, 512, jax.nn.silu),
        (128, 256, jnp.tanh),
    ],
)
def test_fsdp_that_gathers_activations_is_named(rows: int, width: int, act: Any) -> None:
    assert causes(*fsdp(rows, width, constrained=False, act=act)) == ["gathered_batch"]
    assert causes(*fsdp(rows, width, constrained=True, act=act)) == []


@pytest.mark.parametrize(
    "make",
    [
        meshes.data_parallel,
        meshes.tensor_parallel,
        meshes.fsdp_by_hand,
        meshes.ring_attention,
        meshes.pipeline,
        meshes.expert_parallel,
    ],
)
def test_idioms_have_no_advice(make: Callable[[], meshes.Case]) -> None:
    assert meshes.reported(make).advice() == []
