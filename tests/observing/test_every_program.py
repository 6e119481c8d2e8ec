"""`record(..., observe="programs")`: programs of JAX are seen without a change of their code."""

from __future__ import annotations

import threading
from concurrent.futures import Future
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
from distlab.devices import jax_internals
from distlab.errors import ArgumentValueError, CaptureError
from distlab.folds import Folds
from distlab.page.programs import program_rows
from distlab.profiling import sampler


def step(state: Any, x: jax.Array) -> tuple[Any, jax.Array]:
    return jax.tree.map(lambda leaf: leaf + x.sum(), state), x.mean()


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))


def put(mesh: Mesh, spec: P, *shape: int) -> jax.Array:
    return jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))


def of(recorder: Any, kind: type[Any]) -> list[Any]:
    return [one for one in recorder.ring.since(0).events if type(one) is kind]


def test_each_program_is_an_event_with_its_contents(recorder: Any, mesh: Mesh) -> None:
    state, x = {"w": put(mesh, P(), 8, 8)}, put(mesh, P("data"), 8, 8)
    train = jax.jit(step, donate_argnums=0)
    with dl.record(None, observe="programs"):
        state, _ = train(state, x)
        train({"w": put(mesh, P(None, "model"), 8, 8)}, x)
        train.lower(state, x).compile()  # compiled already
        jnp.ones(3) + 1  # JAX's own programs are none
        jax.pmap(lambda x: jax.lax.pmean(x, "i"), axis_name="i")(np.ones((8, 4)))
    train({"w": put(mesh, P("data"), 8, 8)}, x)  # nothing is recorded any more
    found = of(recorder, events.Compile)
    assert [(one.function, one.cause, one.changed) for one in found] == [
        ("step", "new function", ""),
        ("step", "new sharding", "state['w']: P() -> P(None, 'model')"),
        ("pmap", "new function", ""),
    ]
    first = found[0]
    assert first.arguments == ["state['w']: float32[8, 8] P()", "x: float32[8, 8] P('data')"]
    assert [one.name for one in first.inputs] == ["state['w']", "x"]
    assert [one.donated for one in first.inputs] == [True, False]
    assert {axis for one in first.collectives for axis in one.axes} == {"data"}
    assert (first.source, min(first.trace_ns, first.compile_ns) > 0) == (
        f"test_every_program.py:{step.__code__.co_firstlineno}",
        True,
    )
    assert [one.axes for one in of(recorder, events.Strategy)] == [
        {"data": 4, "model": 2},
        {"i": 8},
    ]
    assert of(recorder, events.Step) == []
    whys = [one.why for one in dl.compilations() if one.name == "step"]
    assert whys[-3:-1] == ["new function", "state['w']: P() -> P(None, 'model')"]


def test_programs_of_strategies_and_observed_ones_are_there_once(recorder: Any) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    double = dl.observe(jax.jit(lambda x: x * 2), name="double")
    with dl.record(None, observe="programs"):
        strategy.run(lambda: jnp.ones(3))
        double(jnp.ones(3))
    assert len(of(recorder, events.Compile)) == len(of(recorder, events.Step)) == 2


def test_profiles_show_the_share_of_each_program(recorder: Any, tmp_path: Path) -> None:
    x = put(Mesh(np.array(jax.devices()), ("data",)), P("data"), 256, 256)
    with dl.record(tmp_path / "run", observe="programs", probe=False) as recording:
        product = jax.jit(lambda x: jnp.tanh(x @ x.T) @ x)
        product(x)
        future = recording.capture(seconds=0.2)
        while not future.done():
            product(x).block_until_ready()
        capture = future.result(60)
        for loss in (0.5, 0.25):
            recording.log(loss=loss)
    assert (capture.steps, capture.devices) == (0, [f"CPU:{n}" for n in range(8)])
    share = capture.programs[0]
    assert (share.name, share.runs > 0, len(share.busy_ns)) == ("_lambda", True, 8)
    assert 0 < sum(share.busy_ns) <= 8 * (capture.time_ns - capture.start_ns)
    with dl.Run.open(tmp_path / "run") as run:
        folds = Folds()
        folds.add([one for one in run.events() if not isinstance(one, events.Unknown)])
    assert folds.columns("metrics")["step"][0].tolist() == [0, 1]
    columns = folds.columns("programs")
    assert (columns["observed"], columns["function"]) == (True, ["<lambda>"])
    assert columns["share"][-1] == pytest.approx(
        sum(share.busy_ns) / 8 / (capture.time_ns - capture.start_ns)
    )
    assert program_rows(columns)["steps"][-1].endswith("% of the time")


def test_a_failing_reader_ends_no_compilation(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "compiled", lambda *_: 1 / 0)
    with dl.record(None, observe="programs"):
        assert float(jax.jit(lambda x: x - 3)(4.0)) == 1
    (lost,) = of(recorder, events.Lost)
    assert lost.reason.startswith("The program of <lambda> could not be read: ZeroDivisionError")


def test_without_the_private_method_compilations_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_internals, "Computation", None)
    count = len(dl.compilations())
    with dl.record(None, observe="programs"):
        pass
    assert len(dl.compilations()) == count


def test_the_method_of_jax_is_its_own_after_the_recording() -> None:
    before = jax_internals.Computation.compile
    outer = dl.record(None, observe="programs")
    with dl.record(None, observe="programs"):
        assert jax_internals.Computation.compile is not before
    assert jax_internals.Computation.compile is not before
    outer.close()
    assert jax_internals.Computation.compile is before


def test_something_else_to_observe_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match='observe is "programs"'):
        dl.record(None, observe="steps")  # type: ignore[arg-type]


def test_profiles_are_taken_until_the_recording_ends(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    started: list[tuple[Any, ...]] = []

    def start(*args: Any) -> Future[events.Capture]:
        started.append(args)
        asked.set()
        raise CaptureError("another profile is being taken")

    monkeypatch.setattr(recorder.capturer, "start", start)
    monkeypatch.setattr(sampler, "_FIRST_SECONDS", 0.01)
    with dl.record(tmp_path / "run", observe="programs"):
        assert asked.wait(60)
    assert started[0][2] == "recorder"
    assert recorder.capturer.whatever_runs is None


def test_the_methods_of_jax_that_are_asked_are_there() -> None:
    size = jax_internals.cache_size(jax.jit(step))
    assert size is not None
    assert jax_internals.cache_size(jax.pmap(step)) is None
    assert callable(jax_internals.Computation.compile)
