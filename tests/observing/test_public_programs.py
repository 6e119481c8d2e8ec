"""Programs of plain JAX in the style of published examples, watched by adding one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest

import distlab as dl
from distlab import events
from tests.listening import listening
from tests.observing import public_programs as programs

STEPS = 5


class Seen(NamedTuple):
    """The mesh of a program, the axes of its collectives, and its compilations."""

    axes: dict[str, int]
    collectives: set[tuple[str, ...]]
    programs: int = 1
    devices: int = 8


SEEN = {
    programs.flax_data_parallel: Seen({"data": 8}, {("data",)}),
    programs.optax_example: Seen({}, set(), devices=1),
    programs.tensor_parallel: Seen({"X": 4, "Y": 2}, {("X",), ("Y",)}),
    programs.nnx_sharding: Seen(
        {"data": 4, "model": 2}, {("data",), ("model",)}, programs=2
    ),  # XLA divides biases over `model`
    programs.equinox_parallel: Seen({"batch": 8}, {("batch",)}),
    programs.pmap_program: Seen({"devices": 8}, {("devices",)}, programs=2),  # JAX compiles twice
    programs.shard_map_transformer: Seen({"data": 2, "model": 4}, {("data",), ("model",)}),
}


@pytest.mark.parametrize("program", SEEN, ids=lambda program: program.__name__)
def test_one_line_shows_a_public_program(program: Callable[..., Any]) -> None:
    seen = SEEN[program]
    expected = program(lambda step: step, STEPS)
    with listening() as heard:
        assert program(dl.observe, STEPS) == expected
    assert expected[-1] < expected[0]
    compiled = heard.of(events.Compile)
    assert len(compiled) == seen.programs
    assert len(heard.of(events.Step)) == STEPS
    assert heard.watched == [one.step for one in heard.of(events.Step)]
    on = heard.of(events.Strategy)[-1]
    assert (on.axes, len(on.devices), on.form) == (seen.axes, seen.devices, "mesh")
    last = compiled[-1]
    assert {tuple(one.axes) for one in last.collectives} == seen.collectives
    assert None not in {last.flops, last.peak_bytes}
    assert [*heard.of(events.Lost), *heard.of(events.Error)] == []
    jax.clear_caches()
