"""A step that has run is not lost where its program can't be examined for pages and advice."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.events import Compile, Lost, Step
from distlab.recording import RingRecorder
from distlab.step import runner


def test_a_failed_examination_is_told_and_the_step_returns(
    recorder: RingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("a_new_parameter")

    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    monkeypatch.setattr(runner, "examined", fail)

    def step(x: Any) -> Any:
        return x + 1

    with pytest.warns(RuntimeWarning, match=r"program of step could not be examined.*a_new_par"):
        result = strategy.run(step, args=(jnp.ones(()),))
    assert [float(v) for v in strategy.run(step, args=(jnp.ones(()),)).values] == [2.0, 2.0]
    assert float(result.values[1]) == 2.0
    found = recorder.ring.since(0).events
    assert len([e for e in found if isinstance(e, Step)]) == 2
    assert [e for e in found if isinstance(e, Compile)] == []
    (lost,) = [e for e in found if isinstance(e, Lost)]
    assert "a_new_parameter" in lost.reason


def test_a_program_with_a_random_key_in_a_variable_is_examined(recorder: RingRecorder) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        key = dl.Variable(jax.random.key(3), name="key")
        scale = dl.Variable(jnp.ones(3), name="scale")

    def step() -> Any:
        new, own = jax.random.split(key.value())
        key.assign(new)
        return jax.random.uniform(own, (3,)) * scale.value()

    strategy.run(step)
    (compiled,) = [e for e in recorder.ring.since(0).events if isinstance(e, Compile)]
    assert compiled.assigned == ["key"]
