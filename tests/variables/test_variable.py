"""Variables: reads, assignments, and where they are refused."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ContextError, ValueShapeError
from distlab.variables.variable import live
from tests.listening import listening


def _strategy(replicas: int = 2) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def test_on_read_copies_may_be_trainable() -> None:
    on_read = dl.VariableSynchronization.ON_READ
    with _strategy().scope():
        assert dl.Variable(1.0, trainable=True, synchronization=on_read).trainable
        assert not dl.Variable(1.0, synchronization=on_read).trainable


def test_it_computes_like_an_array() -> None:
    with _strategy().scope():
        v, w = dl.Variable(4.0), dl.Variable([[1.0, 2.0], [3.0, 4.0]])
    results = [v + 1, 1 - v, v * 2, 8 / v, v**2, 2**v, v % 3, v // 3, -v, abs(-v), v + v]
    assert [float(r) for r in results] == [5, -3, 8, 2, 16, 16, 1, 1, -4, 4, 8]
    assert [bool(r) for r in (v > 3, v < 3, v >= 4, v <= 3)] == [True, False, True, False]
    np.testing.assert_array_equal(w @ jnp.ones(2), [3, 7])
    np.testing.assert_array_equal(jnp.ones(2) @ w, [4, 6])
    sines = jnp.sin(w)  # type: ignore[arg-type]  # JAX's types do not know __jax_array__
    np.testing.assert_allclose(sines, np.sin(np.asarray(w)), rtol=1e-6)
    assert float(w[1, 0]) == 3.0
    assert float(v) == 4.0


def test_assigning_under_another_strategy_is_refused() -> None:
    mine, other = _strategy(2), _strategy(3)
    with mine.scope():
        v = dl.Variable(1.0, name="w")
    with pytest.raises(ContextError, match=r"w belongs to Mirrored.*CPU:1\) and assign"):
        other.run(lambda: v.assign(2.0))
    with other.scope(), pytest.raises(ContextError):
        v.assign(2.0)
    assert float(v) == 1.0


def test_placing_and_freeing_are_events() -> None:
    s = _strategy()
    with listening() as heard, s.scope():
        v = dl.Variable(np.zeros((4, 2), np.float32), name="placed and freed")
        del v
        gc.collect()
    place, free = [p for p in heard.of(dl.events.Placement) if p.name == "placed and freed"]
    assert (place.action, place.name, place.layout, place.shape) == (
        "place",
        "placed and freed",
        "replicated",
        [4, 2],
    )
    assert place.devices == ["CPU:0", "CPU:1"]
    assert place.bytes_per_device == [32, 32]
    assert (free.action, free.array) == ("free", place.array)


def test_variables_are_listed_in_their_order_of_creation() -> None:
    # A step's program takes them in this order, so that it is the same program in each process.
    made = [dl.Variable(0.0) for _ in range(50)]
    del made[::7]
    assert [v for v in live() if any(v is own for own in made)] == made


def test_jit_in_a_step_gets_a_variables_present_value() -> None:
    strategy = _strategy()
    with strategy.scope():
        variable = dl.Variable(jnp.zeros(2))

    def step() -> tuple[jax.Array, ...]:
        variable.assign_add(jnp.ones(2))
        return jnp.tanh(variable), jax.jit(lambda x: x + 1)(variable)  # type: ignore[arg-type]

    for count in (1, 2):
        tanh, following = strategy.run(step)
        np.testing.assert_allclose(tanh.values, [np.tanh([count, count])] * 2, rtol=1e-6)
        assert [value.tolist() for value in following.values] == [[count + 1.0] * 2] * 2


@pytest.mark.parametrize(
    ("initial", "number"),
    [(1.0, 1e300), (jnp.bfloat16(1), [3.4e38])],
)
def test_a_number_that_would_become_infinite_is_refused(initial: Any, number: Any) -> None:
    v = dl.Variable(jnp.broadcast_to(initial, np.shape(number)))
    for call in v.assign, v.assign_add:
        with pytest.raises(ValueShapeError, match=r"would become .*inf"):
            call(number)
    assert v.numpy() == initial
    v.assign(np.full(np.shape(number), np.inf).tolist())
    assert np.isinf(v.numpy().astype(float)).all()
