"""Programs that were compiled again since only a placement changed, and their clean twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab.advice import advise
from distlab.recording import RingRecorder
from tests.programs.meshes import grid


def put(*spec: str | None, shape: tuple[int, ...] = (8, 8)) -> jax.Array:
    return jax.device_put(np.ones(shape, np.float32), sharding(*spec))


def sharding(*spec: str | None) -> NamedSharding:
    return NamedSharding(grid(data=4, model=2), P(*spec))


def train(state: Any, x: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf - 0.1 * (x @ leaf).mean(), state)


def looped(state: Any, **options: Any) -> None:
    step = dl.observe(jax.jit(train, **options))
    for _ in range(12):
        state = step(state, put("data"))


def evaluated(first: Any, then: Any, *, times: int = 12) -> None:
    step = dl.observe(jax.jit(lambda state, x: (x @ state).sum()))
    for state in (*[first] * times, *[then] * 12):
        step(state, put("data"))


def with_batches(xs: Iterator[jax.Array]) -> None:
    step = dl.observe(jax.jit(lambda state, x: (x @ state).sum()))
    for x in xs:
        step(put(), x)


def donated() -> None:
    step = dl.observe(jax.jit(train, donate_argnums=0))
    state = {"w": jnp.ones((8, 8))}
    for _ in range(12):
        state = step(state, put("data"))


PLANTED: dict[str, tuple[Callable[[], None], str]] = {
    "a state made on one device": (lambda: looped({"w": jnp.ones((8, 8))}), "state['w']"),
    "a donated one": (donated, "state['w']"),
    "weights divided after a try": (lambda: evaluated(put(), put(None, "model"), times=2), "state"),
    "a first batch that is whole": (
        lambda: with_batches(iter([put(), *[put("data")] * 12])),
        "x",
    ),
    "a result that XLA divides": (
        lambda: looped({"w": put()}, out_shardings={"w": sharding(None, "model")}),
        "state['w']",
    ),
}
CLEAN: dict[str, Callable[[], None]] = {
    "a state placed before": lambda: looped({"w": put()}),
    "a state and out_shardings": lambda: looped(
        {"w": put(None, "model")}, out_shardings={"w": sharding(None, "model")}
    ),
    "two placements, both in use": lambda: evaluated(put(), put(None, "model")),
    "a last batch of another shape": lambda: with_batches(
        iter([*[put("data")] * 12, put("data", shape=(4, 8))])
    ),
    "one device": lambda: evaluated(jnp.ones((8, 8)), jnp.zeros((8, 8))),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_argument_whose_placement_changes_is_named(name: str, recorder: RingRecorder) -> None:
    loop, argument = PLANTED[name]
    loop()
    (one,) = [one for one in advise(recorder.ring) if one.cause == "recompilation"]
    assert one.subject == f"argument {argument}"
    assert one.evidence["compilations"] == 2
    assert "out_shardings=" in one.remedy


@pytest.mark.parametrize("name", CLEAN)
def test_a_placement_that_stays_is_no_advice(name: str, recorder: RingRecorder) -> None:
    CLEAN[name]()
    assert [one for one in advise(recorder.ring) if one.cause == "recompilation"] == []
