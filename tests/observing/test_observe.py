"""`observe`: calls of jitted functions are steps, and the functions stay as they are."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab import events
from distlab.errors import ArgumentTypeError
from distlab.observing import compilations, observed
from tests.listening import Listener, listening


@pytest.fixture
def heard() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))


def put(mesh: Mesh, spec: P, *shape: int) -> jax.Array:
    return jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))


def add(state: Any, x: jax.Array) -> tuple[Any, jax.Array]:
    return jax.tree.map(lambda leaf: leaf + x.sum(), state), x.mean()


def causes(heard: Listener) -> list[tuple[str, str]]:
    return [(one.cause, one.changed) for one in heard.of(events.Compile)]


def programs(heard: Listener) -> list[int]:
    """Returns each step's program, the first one as 0."""
    first = heard.of(events.Compile)[0].program
    return [step.program - first for step in heard.of(events.Step)]


def test_each_call_is_a_step_on_the_mesh(heard: Listener, mesh: Mesh) -> None:
    step = dl.observe(jax.jit(add, donate_argnums=0), name="train")
    state, x = {"w": put(mesh, P(), 8, 8)}, put(mesh, P("data"), 8, 8)
    for _ in range(3):
        state, _ = step(state, x)
    (on,) = heard.of(events.Strategy)
    assert (on.name, on.form, on.kind) == ("Mesh(data=4, model=2)", "mesh", "mesh")
    assert (on.axes, on.devices) == ({"data": 4, "model": 2}, [f"CPU:{n}" for n in range(8)])
    (program,) = heard.of(events.Compile)
    assert program.arguments == ["state['w']: float32[8, 8] P()", "x: float32[8, 8] P('data')"]
    assert (program.function, program.cause, program.trains) == ("train", "new function", False)
    assert {one.kind for one in program.collectives} == {"all-reduce"}
    assert min(program.trace_ns, program.compile_ns) > 0
    assert {one.strategy for one in heard.of(events.Step)} == {on.strategy} == {program.strategy}
    assert programs(heard) == [0, 0, 0]
    assert heard.watched == [one.step for one in heard.of(events.Step)]


def test_compilations_say_what_changed(heard: Listener, mesh: Mesh) -> None:
    step = dl.observe(jax.jit(add))
    state, x = {"b": put(mesh, P(), 4), "w": put(mesh, P(), 8, 8)}, put(mesh, P("data"), 8, 8)
    moved = {**state, "w": put(mesh, P(None, "model"), 8, 8)}
    for arguments in ((state, x), (state, put(mesh, P("data"), 4, 8)), (moved, x), (state, x)):
        step(*arguments)
    step({**state, "c": x}, x)
    assert causes(heard) == [
        ("new function", ""),
        ("new shapes", "x: float32[8, 8] -> float32[4, 8]"),
        ("new sharding", "state['w']: P() -> P(None, 'model')"),
        ("new structure", "state['c'] added or removed"),
    ]
    assert programs(heard) == [0, 1, 2, 0, 3]
    whys = [one.why for one in dl.compilations() if one.name == "add"]
    assert whys[-2:] == ["state['w']: P() -> P(None, 'model')", "state['c'] added or removed"]


def test_an_uncommitted_state_is_why_the_second_call_compiles(heard: Listener, mesh: Mesh) -> None:
    step = dl.observe(jax.jit(add))
    state, x = {"w": jnp.ones((8, 8))}, put(mesh, P("data"), 8, 8)
    for _ in range(3):
        state, _ = step(state, x)
    assert causes(heard)[1] == ("new sharding", "state['w']: uncommitted -> P()")
    assert programs(heard) == [0, 1, 1]


def test_static_numbers_tell_programs_apart_and_traced_ones_do_not(
    heard: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = dl.observe(jax.jit(lambda x, times, rate: x * times * rate, static_argnums=1))
    rates = iter(range(100))
    calls = [(4, 2), (8, 2), (4, 3)]

    def call(size: int, times: int) -> None:
        rate = float(next(rates))
        assert float(step(jnp.ones(size), times, rate)[0]) == times * rate

    for size, times in [*calls[:1] * 2, *calls * 4]:
        call(size, times)
    monkeypatch.setattr(observed, "described", lambda *_: 1 / 0)
    for size, times in calls:
        call(size, times)
    assert causes(heard) == [
        ("new function", ""),
        ("new shapes", "x: float32[4] -> float32[8]"),
        ("new structure", "times: 2 -> 3; rate: 0.0 -> 4.0"),
    ]
    assert programs(heard) == [0, 0, *[0, 1, 2] * 5]
    assert heard.of(events.Lost) == []


def test_programs_compiled_elsewhere_are_told_apart(heard: Listener, mesh: Mesh) -> None:
    step = jax.jit(add)
    small, large = put(mesh, P("data"), 4, 8), put(mesh, P("data"), 8, 8)
    step({}, small), step({}, large)
    again = dl.observe(step)
    for x in (small, large, small):
        again({}, x)
    assert programs(heard) == [0, 1, 0]


def test_a_function_jitted_anew_has_its_program(heard: Listener, mesh: Mesh) -> None:
    """As where a notebook's cell runs again: JAX compiles nothing, and traces once more."""
    w, x = put(mesh, P(), 8, 8), put(mesh, P("data"), 8, 8)
    for _ in range(2):
        dl.observe(jax.jit(add), name="train")(w, x)
    assert [len(one.collectives) for one in heard.of(events.Compile)] == [1, 1]


def test_inside_of_transformations_it_is_the_function(heard: Listener) -> None:
    step = dl.observe(jax.jit(lambda x: (x**2).sum()))
    x = jnp.arange(3.0)
    assert jax.grad(step)(x).tolist() == [0, 2, 4]
    assert jax.vmap(step)(x[:, None]).tolist() == [0, 1, 4]
    assert float(jax.jit(lambda x: 2 * step(x))(x)) == 10
    assert heard.events == []


def test_donation_and_ahead_of_time_are_unchanged(heard: Listener, mesh: Mesh) -> None:
    step = dl.observe(jax.jit(add, donate_argnums=0))
    state, x = put(mesh, P("data"), 8, 8), put(mesh, P("data"), 8, 8)
    before, _ = step(state, x)  # JAX may share the memory of NumPy's, which can't be given away
    pointers = {one.data.unsafe_buffer_pointer() for one in before.addressable_shards}
    state, _ = step(before, x)
    assert before.is_deleted()
    assert {one.data.unsafe_buffer_pointer() for one in state.addressable_shards} == pointers
    compiled = step.lower(state, x).compile()
    assert step.trace(state, x).jaxpr.out_avals[1].shape == ()
    assert len(heard.of(events.Step)) == 2
    ahead = dl.observe(compiled, name="ahead")
    ahead(state, x)
    assert (heard.of(events.Compile)[-1].function, heard.of(events.Compile)[-1].compile_ns) == (
        "ahead",
        0,
    )
    assert len(heard.of(events.Compile)[-1].collectives) > 0


def test_errors_are_events_and_raised_as_they_are(heard: Listener) -> None:
    step = dl.observe(jax.jit(lambda x: x @ x), name="square")
    with pytest.raises(TypeError) as raised:
        step(jnp.ones((2, 3)))
    (error,) = heard.of(events.Error)
    assert (error.where, error.type) == ("square", "TypeError")
    assert error.message == str(raised.value)[:2000]


def test_functions_in_classes_and_partials_are_observed(heard: Listener) -> None:
    class Trainer:
        @dl.observe
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x: jax.Array) -> jax.Array:
            return x * 2

        @functools.partial(jax.jit, static_argnums=0)
        def bare(self, x: jax.Array) -> jax.Array:
            return x * 3

    trainer, x = Trainer(), jnp.ones(2)
    assert trainer.step(x).tolist() == [2, 2]
    assert dl.observe(trainer.bare)(x).tolist() == [3, 3]
    scaled = functools.partial(jax.jit(jnp.multiply), 5)
    assert dl.observe(scaled, name="five")(x).tolist() == [5, 5]
    names = [one.function for one in heard.of(events.Compile)]
    assert names == ["Trainer.step", "Trainer.bare", "five"]
    assert all(one.flops is not None for one in heard.of(events.Compile))


def test_a_function_that_is_not_jitted_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="accepts a jitted function"):
        dl.observe(add)


def test_pmap_is_a_mesh_of_one_axis(heard: Listener) -> None:
    step = dl.observe(jax.pmap(lambda x: jax.lax.pmean(x, "i"), axis_name="i"), name="mean")
    for _ in range(2):
        step(np.ones((8, 4), np.float32))
    (on,) = heard.of(events.Strategy)
    assert on.axes == {"i": 8}
    assert [one.kind for one in heard.of(events.Compile)[0].collectives] == ["all-reduce"]
    assert programs(heard) == [0, 0]


def test_compilations_are_heard_after_others_removed_the_listeners() -> None:
    jax.monitoring.clear_event_listeners()
    count = len(dl.compilations())
    jax.jit(lambda x: x * 7.5 + count)(jnp.ones(3))
    assert dl.compilations()[-1].name == "<lambda>"
    assert compilations.heard.last is dl.compilations()[-1]


def test_nan_in_results_is_reported(heard: Listener, mesh: Mesh) -> None:
    step = dl.observe(jax.jit(lambda x: jnp.log(x).sum()))
    good, bad = put(mesh, P("data"), 8), -put(mesh, P("data"), 8)
    for x in [good] * 5 + [bad] * 70:
        jax.block_until_ready(step(x))
    (found,) = heard.of(events.NotFinite)
    assert found.step == heard.of(events.Step)[5].step


def test_steps_count_the_examples_of_batches_that_were_placed(heard: Listener, mesh: Mesh) -> None:
    step = dl.observe(jax.jit(lambda state, batch: (state, batch["x"].sum())))
    loader = ({"x": np.ones((size, 2), np.float32), "y": np.ones(size)} for size in (8, 8, 4))
    for batch in dl.shard_batches(loader, mesh, P("data")):
        step(0.0, batch)
    assert [one.examples for one in heard.of(events.Step)] == [8, 8, 4]


def test_calls_in_turn_are_looked_at_once_for_each_program(
    heard: Listener, mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = dl.observe(jax.jit(add))
    calls: list[Any] = [({}, put(mesh, P("data"), size, 8)) for size in (8, 4, 16)]
    for arguments in calls * 2:
        step(*arguments)
    monkeypatch.setattr(observed, "described", lambda *_: 1 / 0)
    for arguments in calls * 2:
        step(*arguments)
    assert programs(heard) == [0, 1, 2] * 4
    assert heard.of(events.Lost) == []
