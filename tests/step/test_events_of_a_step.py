"""The events of steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from tests.listening import listening


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(4)])


def _mean(v: jax.Array) -> jax.Array:
    mean: jax.Array = dl.get_replica_context().all_reduce("MEAN", v.sum(0))
    return mean


def test_each_step_names_its_program_and_examples() -> None:
    s = _strategy()
    data = dl.data.Dataset.from_tensor_slices(np.ones((10, 2), np.float32)).batch(8)
    with listening() as heard:
        for x in s.experimental_distribute_dataset(data):
            s.run(_mean, args=(x,))
        s.run(lambda: jnp.ones(()))
    full, partial, other = heard.of(events.Step)
    programs = {c.program: c for c in heard.of(events.Compile)}
    assert (full.examples, partial.examples, other.examples) == (8, 2, 0)
    assert programs[full.program].mode == "traced"
    assert programs[partial.program].mode == "ragged"
    assert [full.step, partial.step, other.step] == list(range(full.step, full.step + 3))
    assert heard.watched == [full.step, partial.step, other.step]
    assert all(step.time_ns <= step.dispatched_ns for step in (full, partial, other))


def test_compilations_say_why() -> None:
    s = _strategy()
    with listening() as heard:
        s.run(_mean, args=(s.replicate(np.ones((2, 3))),))
        s.run(_mean, args=(s.replicate(np.ones((2, 3))),))
        s.run(_mean, args=(s.replicate(np.ones((5, 3))),))
        s.run(lambda v, **_: v, args=(1.0,), kwargs={"extra": 1.0})
    first, second, third = heard.of(events.Compile)
    assert (first.cause, first.function) == ("new function", "_mean")
    assert first.arguments == ["v: float32[2, 3]"]
    assert second.cause == "new shapes"
    assert second.changed == "v: float32[2, 3] -> float32[5, 3]"
    assert third.arguments == ["v: float32[]", "extra: float32[]"]
    assert all(c.trace_ns > 0 and c.compile_ns > 0 for c in (first, second, third))


def test_the_collectives_inside_a_program_are_named() -> None:
    s = _strategy()
    with listening() as heard:
        s.run(_mean, args=(s.replicate(np.ones((2, 3))),))
    (program,) = heard.of(events.Compile)
    (collective,) = program.collectives
    assert (collective.kind, collective.dtype, collective.participants) == ("all-reduce", "f32", 4)
    assert (collective.operand_bytes, collective.times_per_step) == (12, 1)


def test_an_error_is_an_event_and_nothing_else_is_said() -> None:
    s = _strategy()
    with listening() as heard, pytest.raises(ZeroDivisionError):
        s.run(lambda: 1 / 0)
    (error,) = heard.events
    assert isinstance(error, events.Error)
    assert (error.where, error.type) == ("run", "ZeroDivisionError")


def test_a_strategy_names_its_devices() -> None:
    with listening() as heard:
        s = _strategy()
    (event,) = heard.of(events.Strategy)
    assert (event.strategy, event.name) == (s.number, "MirroredStrategy")
    assert event.devices == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]


def test_copies_of_host_batches_are_events() -> None:
    s = _strategy()
    data = dl.data.Dataset.from_tensor_slices(np.arange(64, dtype=np.float32).reshape(16, 4))
    options = dl.InputOptions(experimental_fetch_to_device=False)
    with listening() as heard:
        for x in s.experimental_distribute_dataset(data.batch(8), options):
            assert isinstance(x.stacked, np.ndarray)
            mean = s.run(_mean, args=(x,))
    first, second = heard.of(events.Copy)
    assert (first.what, first.direction) == ("batch v of _mean", "to_devices")
    assert (first.bytes, first.copies) == (8 * 4 * 4, 4)
    assert second.time_ns > first.time_ns
    assert mean.values[0].tolist() == [92.0, 94.0, 96.0, 98.0]


def test_copies_of_function_values_are_events() -> None:
    s = _strategy()

    def own(context: dl.ValueContext) -> np.ndarray:
        return np.full((2, 3), context.replica_id_in_sync_group, np.float32)

    with listening() as heard:
        s.experimental_distribute_values_from_function(own)
        s.experimental_distribute_values_from_function(lambda _: jnp.ones(3))
    (one,) = heard.of(events.Copy)
    assert (one.what, one.direction) == ("values of own", "to_devices")
    assert (one.bytes, one.copies) == (4 * 2 * 3 * 4, 4)
