"""Structures of Flax NNX objects: each call sees what they consist of now."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import distlab as dl
from distlab.integrations.flax.objects import NnxObjects
from distlab.step.arguments import in_use
from distlab.step.arguments.in_use import Use


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(2, 2, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.parts: Any = nnx.List([nnx.Param(jnp.zeros(1)), nnx.Linear(1, 1, rngs=rngs)])
        self.shared = self.linear.bias
        self.fixed = jnp.ones(1)


def made() -> list[Any]:
    model = Block(nnx.Rngs(0, dropout=1))
    return [model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param), nnx.metrics.Average()]


def split(library: NnxObjects, objects: list[Any]) -> Any:
    use = Use()
    try:
        return library.split(objects, use)
    finally:
        in_use.present.pop(use, None)


CHANGES: dict[str, Callable[[Any], object]] = {
    "sharing": lambda model: setattr(model, "shared", nnx.Param(jnp.zeros(2))),
    "an attribute": lambda model: setattr(model.linear, "extra", 3),
    "a layer": lambda model: setattr(model, "linear", nnx.Linear(2, 3, rngs=nnx.Rngs(1))),
    "a kind": lambda model: model.parts.__setitem__(0, nnx.BatchStat(jnp.ones(1))),
    "a mode": lambda model: model.eval(),
    "metadata": lambda model: model.linear.kernel.set_metadata("tag", "new"),
    "a variable's nest": lambda model: model.parts[0].set_raw_value((jnp.zeros(1), jnp.ones(1))),
}


def test_each_change_of_structure_is_seen_and_equal_ones_are_one() -> None:
    library, objects = NnxObjects(), made()
    alike = [split(library, [Block(nnx.Rngs(n))])[0] for n in range(2)]
    assert alike[0] is alike[1]
    known = [split(library, objects)[0]]
    for change in CHANGES.values():
        change(objects[0])
        known.append(split(library, objects)[0])
        assert split(library, objects)[0] is known[-1]
    assert len(set(known)) == len(CHANGES) + 1


def test_an_update_reaches_variables_their_nests_and_bare_arrays() -> None:
    library, objects = NnxObjects(), made()
    model = objects[0]
    model.parts[0].set_raw_value((jnp.zeros(1), jnp.ones(1)))
    structure, arrays, update = split(library, objects)
    assert [path for _, path in structure.labels].count(".parts[0]") == 2
    update([array + 1 if array.dtype == jnp.float32 else array for array in arrays])
    np.testing.assert_array_equal(model.fixed, [2.0])
    np.testing.assert_array_equal(model.shared[...], [1.0, 1.0])
    assert model.shared is model.linear.bias
    assert [float(part[0]) for part in model.parts[0].get_raw_value()] == [1.0, 2.0]


REPLICAS = 3


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])


def double(model: Any, x: Any) -> None:
    total = dl.get_replica_context().all_reduce("SUM", jnp.sum(x))
    for _, part in nnx.iter_graph(model):
        if isinstance(part, nnx.Param):
            part[...] = part[...] * 2 + total


def test_steps_go_on_with_what_was_changed_between_them(strategy: dl.Strategy) -> None:
    """Ragged batches, a layer that is replaced, shared with another object, and dropped."""
    model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)), b=nnx.Param(jnp.ones(1)))
    other: Any = nnx.Dict(mine=model.a)
    sizes = [3, 3, 2, 4, 3, 1, 3]
    wanted = {"a": 1.0, "b": 1.0}
    for number, size in enumerate(sizes):
        (x,) = strategy.experimental_distribute_dataset(
            dl.data.Dataset.from_tensor_slices(np.ones(size, np.float32)).batch(size)
        )
        strategy.run(double, args=({"model": model, "other": other}, x))
        wanted = {name: value * 2 + size for name, value in wanted.items()}
        assert {name: float(model[name][0]) for name in wanted} == wanted
        assert other.mine is model.a or number > 4
        if number == 2:
            model.b = nnx.Param(jnp.full(1, 5.0))
            wanted["b"] = 5.0
        elif number == 3:
            model.c = model.a  # seen twice, doubled once
        elif number == 4:
            model.a = model.c = nnx.Param(jnp.zeros(1))
            wanted["a"] = 0.0


def test_an_error_in_a_step_leaves_objects_as_they_were(strategy: dl.Strategy) -> None:
    model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)), b=nnx.Param(jnp.ones(1)))

    def step(model: Any, fails: bool) -> None:
        model.a[...] *= 2
        if fails:
            raise RuntimeError("stop")
        model.b[...] *= 2

    for _ in range(3):
        strategy.run(step, args=(model, False))
    with pytest.raises(RuntimeError, match="stop"):
        strategy.run(step, args=(model, True))
    assert (float(model.a[0]), float(model.b[0])) == (8.0, 8.0)
    strategy.run(step, args=(model, False))
    assert (float(model.a[0]), float(model.b[0])) == (16.0, 16.0)


def test_one_model_under_two_strategies_and_alone(strategy: dl.Strategy) -> None:
    model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)))
    other = dl.MirroredStrategy(["CPU:5", "CPU:6"])
    for _ in range(3):
        strategy.run(double, args=(model, 1.0))
        other.run(double, args=(model, 1.0))
        dl.OneDeviceStrategy("CPU:1").run(double, args=(model, 1.0))
    wanted = 1.0
    for _ in range(3):
        for replicas in (REPLICAS, 2, 1):
            wanted = wanted * 2 + replicas
    assert float(model.a[0]) == wanted


def test_a_model_that_steps_used_is_freed_with_its_step() -> None:
    strategy = dl.OneDeviceStrategy("CPU:0")

    def used() -> weakref.ref[Any]:
        model: Any = nnx.Dict(a=nnx.Param(jnp.ones(1)))

        def step(model: Any) -> jax.Array:
            return model.a[...].sum()

        for _ in range(4):
            strategy.run(step, args=(model,))
        return weakref.ref(model)

    gone = used()
    gc.collect()
    assert gone() is None
