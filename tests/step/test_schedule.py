"""A ragged step is cut where dependencies need it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from distlab.devices.mesh import AXIS
from distlab.step.jaxprs.flat import flattened
from distlab.step.ragged.schedule import divide
from distlab.step.ragged.stages import Group, InputSlice, Stages

WEIGHTS = jax.ShapeDtypeStruct((2,), jnp.float32)


def _stages(fn: Callable[..., Any], *counts: int) -> Stages:
    """Returns the stages of a function of weights `(2,)` and rows `(n, 2)`, a group for each n."""
    groups = []
    for replica, count in enumerate(counts):
        rows = jax.ShapeDtypeStruct((count, 2), jnp.float32)
        traced = jax.make_jaxpr(fn, axis_env=[(AXIS, len(counts))])(WEIGHTS, rows)
        inputs: list[InputSlice | None] = [InputSlice(0, (2,)), InputSlice(1, (count, 2))]
        groups.append(Group(flattened(traced, len(counts)), inputs, (replica,)))
    return divide(groups)


def _names(equations: list[Any]) -> list[str]:
    return [equation.primitive.name for equation in equations]


def _sum(x: Any) -> Any:
    return jax.lax.psum(x, AXIS)


def test_a_training_step_has_two_stages() -> None:
    def step(w: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda v: jnp.sum(jnp.tanh(x @ v)))(w)
        loss, gradients = _sum(loss), _sum(gradients)
        return loss, jax.jit(lambda v, g: v - 0.1 * jnp.clip(g, -1, 1))(w, gradients)

    stages = _stages(step, 3, 2, 0)
    assert [len(own.handed) for own in stages.own] == [2, 0]
    assert not any(stages.is_needed(1, group) for group in range(3))
    (common,) = stages.common
    assert common.outputs == [0, 1]
    names = _names([one.equation for one in common.equations])
    assert (len(names), sum(name.startswith("psum") for name in names)) == (3, 2)


def test_row_work_after_a_collective_stays_in_each_group() -> None:
    def normalise(_: Any, x: Any) -> Any:
        centred = x - _sum(x.sum(0))
        return centred / _sum((centred**2).sum(0))

    stages = _stages(normalise, 3, 1)
    assert (len(stages.own), len(stages.common)) == (3, 2)
    assert [own.outputs for own in stages.own] == [[], [], [0]]
    assert [[len(live) for live in own.live] for own in stages.own] == [[0, 0], [0, 0], [1, 1]]


def test_collectives_with_common_work_between_them_share_a_stage() -> None:
    def fn(w: Any, x: Any) -> Any:
        total = _sum(x.sum(0))
        number = jax.lax.axis_index(AXIS)
        for _ in range(3):
            total = jnp.sin(jax.lax.ppermute(total * number, AXIS, [(0, 1), (1, 0)]))
        return total + w

    stages = _stages(fn, 3, 1)
    assert (len(stages.own), len(stages.common)) == (2, 1)
    assert len(stages.own[0].handed) == 2


def test_what_nobody_needs_is_not_computed() -> None:
    def fn(w: Any, x: Any) -> Any:
        jnp.sort(x, axis=0)
        _sum(jnp.cos(w))
        return x * 2

    stages = _stages(fn, 2, 1)
    assert [_names(equations) for equations in stages.own[0].equations] == [["mul"], ["mul"]]
    assert not any(common.equations for common in stages.common)


def test_effects_stay_in_order() -> None:
    def fn(w: Any, x: Any) -> Any:
        total = _sum(x.sum(0)) * x
        jax.debug.print("{}", total)
        jax.debug.print("{}", w)
        return x

    stages = _stages(fn, 2, 1)
    first, last = stages.own
    assert not any("print" in name for name in _names(first.equations[0]))
    assert sum("debug" in name for name in _names(last.equations[0])) == 2
