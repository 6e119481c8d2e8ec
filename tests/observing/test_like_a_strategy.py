"""An observed function is recorded as the same program under a strategy is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab import events
from tests.listening import Listener, listening

STEPS = 6
X = np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)
Y = X[:, :4] * 2
START = {"w1": np.full((16, 32), 0.1, np.float32), "w2": np.full((32, 4), 0.1, np.float32)}


def loss_of(w: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((jnp.tanh(x @ w["w1"]) @ w["w2"] - y) ** 2)


def updated(w: Any, gradients: Any) -> Any:
    return jax.tree.map(lambda a, g: a - 0.1 * g, w, gradients)


def train_with_a_strategy() -> list[float]:
    strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(8)])

    def train(w: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(w, x, y)
        context = dl.get_replica_context()
        loss, gradients = context.all_reduce("MEAN", (loss, gradients))
        return jax.tree.map(dl.Mirrored, updated(w, gradients)), dl.Mirrored(loss)

    put = strategy.experimental_distribute_values_from_function
    parts = [np.split(array, 8) for array in (X, Y)]
    x, y = (put(lambda c, p=p: p[c.replica_id_in_sync_group]) for p in parts)  # type: ignore[misc]
    w, losses = jax.tree.map(dl.Mirrored, jax.tree.map(jnp.asarray, START)), []
    for _ in range(STEPS):
        w, loss = strategy.run(train, (w, x, y))
        losses.append(float(loss))
    return losses


def train_observed() -> list[float]:
    mesh = Mesh(np.array(jax.devices()), ("data",))

    @dl.observe
    @jax.jit
    def train(w: Any, x: jax.Array, y: jax.Array) -> tuple[Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(w, x, y)
        return updated(w, gradients), loss

    x, y = jax.device_put((X, Y), NamedSharding(mesh, P("data")))
    w, losses = jax.device_put(START, NamedSharding(mesh, P())), []
    for _ in range(STEPS):
        w, loss = train(w, x, y)
        losses.append(float(loss))
    return losses


@pytest.fixture(scope="module")
def both() -> tuple[Listener, Listener]:
    with listening() as strategy:
        expected = train_with_a_strategy()
    with listening() as observed:
        losses = train_observed()
    assert losses == pytest.approx(expected, rel=1e-5)
    return strategy, observed


def test_kinds_and_numbers_of_events_are_the_same(both: tuple[Listener, Listener]) -> None:
    without = (events.Placement, events.Copy)  # of variables, and values that a strategy places
    counts = [
        Counter(type(one).__name__ for one in heard.events if not isinstance(one, without))
        for heard in both
    ]
    assert counts[0] == counts[1] == {"Strategy": 1, "Compile": 1, "Step": STEPS}
    assert [len(heard.watched) for heard in both] == [STEPS, STEPS]


def test_devices_and_what_refers_to_them_are_the_same(both: tuple[Listener, Listener]) -> None:
    for heard in both:
        (on,), (program,) = heard.of(events.Strategy), heard.of(events.Compile)
        assert on.devices == [f"CPU:{n}" for n in range(8)]
        steps = heard.of(events.Step)
        assert {(one.strategy, one.program) for one in steps} == {(on.strategy, program.program)}
        first = steps[0].step
        assert [one.step for one in steps] == list(range(first, first + STEPS))


def test_the_programs_are_the_same(both: tuple[Listener, Listener]) -> None:
    programs = [heard.of(events.Compile)[0] for heard in both]
    sums = [
        [
            (one.kind, one.dtype, one.participants, one.group, one.times_per_step)
            for one in program.collectives
        ]
        for program in programs
    ]
    assert {*sums[0]} == {*sums[1]} == {("all-reduce", "f32", 8, 8, 1)}
    size = sum(array.nbytes for array in START.values()) + 4
    assert [sum(c.operand_bytes for c in one.collectives) for one in programs] == [size, size]
    for name in ("mode", "cause", "changed", "trains", "assigned", "doubts"):
        assert getattr(programs[0], name) == getattr(programs[1], name), name
    for name in ("argument_bytes", "output_bytes"):
        # A strategy's program also returns its mark of the step's end.
        assert getattr(programs[0], name) == pytest.approx(getattr(programs[1], name), abs=64)


def test_a_recording_has_ready_times_samples_and_captures(recorder: Any, tmp_path: Path) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    by_model = NamedSharding(mesh, P(None, "model"))
    step = dl.observe(
        jax.jit(lambda w, x: (jnp.tanh(x @ w), (x @ w).mean()), out_shardings=(by_model, None)),
        name="product",
    )
    w, x = jax.device_put((np.eye(256, dtype=np.float32),) * 2, by_model)
    step(w, x)
    with dl.record(tmp_path / "run", probe=False) as recording:
        future = recording.capture(steps=4, seconds=60)
        while not future.done():
            x, mean = step(w, x)
            recording.log(mean=mean)
        capture = future.result(60)
    names = [f"CPU:{n}" for n in range(8)]
    assert (capture.devices, capture.steps >= 4) == (names, True)
    assert min(capture.compute_ns) > 0
    with dl.Run.open(tmp_path / "run") as run:
        found = [one for one in run.events() if not isinstance(one, events.Unknown)]
        summary = run.summary()
        (program,) = run.programs()
    (on,) = [one for one in found if isinstance(one, events.Strategy)]
    assert (on.axes, on.kind) == ({"data": 4, "model": 2}, "mesh")
    ready = [one for one in found if isinstance(one, events.StepReady)]
    assert {len(one.ready_ns) for one in ready} == {8}
    samples = [one for one in found if isinstance(one, events.DeviceSample)]
    assert {(one.strategy, len(one.busy_ns)) for one in samples} == {(on.strategy, 8)}
    steps = sum(isinstance(one, events.Step) for one in found)
    assert summary["steps"] == steps == program.steps
    assert (program.function, program.kind, program.arguments[0]) == (
        "product",
        "mesh",
        "w: float32[256, 256] P(None, 'model')",
    )
    assert "each replica gets" not in (program._repr_html_() or "")
