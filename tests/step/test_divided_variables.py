"""Variables that are divided over the replicas: the mirrored step's numbers, in parts."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.devices import in_flight
from distlab.errors import ArgumentValueError, StructureError, UnsupportedError
from tests.listening import listening

W = np.arange(32, dtype=np.float32).reshape(8, 4) / 10


def divided(replicas: int = 4, least: int = 16) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)], shard_variables=least)


def variable(strategy: dl.Strategy, value: Any = W, **options: Any) -> dl.Variable:
    with strategy.scope():
        return dl.Variable(value, name="w", **options)


def parts(v: dl.Variable) -> list[tuple[int, ...]]:
    return [shard.data.shape for shard in v.value().addressable_shards]


def test_a_part_lies_on_each_replica() -> None:
    v = variable(divided())
    assert parts(v) == [(2, 4)] * 4
    np.testing.assert_array_equal(v, W)


@pytest.mark.parametrize(
    ("shape", "axis"), [((8, 3), 0), ((3, 8), 1), ((3, 3, 4), 2), ((3, 5), None), ((2,), None)]
)
def test_the_first_axis_that_divides_is_divided(shape: tuple[int, ...], axis: int | None) -> None:
    v = variable(divided(least=12), np.ones(shape, np.float32))
    whole = tuple(n // 4 if d == axis else n for d, n in enumerate(shape))
    assert {shard.data.shape for shard in v.value().addressable_shards} == {whole}


def test_small_and_on_read_variables_stay_whole() -> None:
    strategy = divided(least=129)
    each = variable(divided(), synchronization=dl.VariableSynchronization.ON_READ)
    assert [variable(strategy).storage.layout.name, each.storage.layout.name] == [
        "replicated",
        "per_replica",
    ]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "yes", None])
def test_other_sizes_are_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentValueError, match="shard_variables must be True, False or"):
        dl.MirroredStrategy(shard_variables=wrong)


def test_events_describe_the_parts() -> None:
    with listening() as heard:
        v = variable(divided())
    (strategy,) = heard.of(events.Strategy)
    (placed,) = heard.of(events.Placement)
    assert strategy.axes == {"replica": 4}
    assert (placed.layout, placed.spec, placed.shape) == ("divided", [["replica"], []], [8, 4])
    assert placed.bytes_per_device == [32] * 4
    assert v._repr_html_().count("32 B") == 4


def test_values_assigned_from_outside_stay_in_parts() -> None:
    strategy = divided()
    v, other = variable(strategy), variable(strategy)
    v.assign(W * 2)
    v.assign_sub(other)
    other.assign(v.value() + 1)
    v.scatter_add(dl.IndexedSlices(jnp.ones((2, 4)), jnp.array([0, 5]), (8, 4)))
    expected = W.copy()
    expected[[0, 5]] += 1
    np.testing.assert_allclose(v, expected, rtol=1e-6)
    np.testing.assert_allclose(other, W + 1, rtol=1e-6)
    assert parts(v) == parts(other) == [(2, 4)] * 4


def test_replicas_receive_a_divided_value_whole() -> None:
    strategy = divided()
    value = variable(strategy).value()
    sums = strategy.run(lambda given: given.sum() + value.sum(), args=(value * 1,))
    np.testing.assert_allclose(sums.values, [2 * W.sum()] * 4, rtol=1e-6)


def test_different_values_of_replicas_are_refused() -> None:
    strategy = divided()
    v = variable(strategy)
    x = next(iter(strategy.experimental_distribute_dataset([np.arange(8.0, dtype=np.float32)])))

    def step(x: jax.Array) -> None:
        v.assign(jnp.ones((8, 4)) * x.sum())

    with pytest.raises(StructureError, match=r"w is divided .* depends on x without an all-reduce"):
        strategy.run(step, args=(x,))
    np.testing.assert_array_equal(v, W)


def batch(strategy: dl.Strategy, rows: int) -> Any:
    x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8) / 100
    return next(iter(strategy.experimental_distribute_dataset([x])))


def descent(v: dl.Variable) -> Callable[[jax.Array], jax.Array]:
    def step(x: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda w: jnp.sum((x @ w) ** 2))(v.value())
        v.assign_sub(0.001 * dl.get_replica_context().all_reduce("SUM", gradient))
        return jnp.sum(v.value())

    return step


def descended(strategy: dl.Strategy, v: dl.Variable, *rows: int) -> Any:
    step = descent(v)
    return [strategy.run(step, args=(batch(strategy, n),)).values for n in rows]


def descended_in_one_program(strategy: dl.Strategy, v: dl.Variable) -> Any:
    """Descends with parts of different sizes, where a call reads the replica's number."""
    numbered = jax.jit(lambda x: x.sum() * jax.lax.axis_index("replica"))

    def step(x: jax.Array) -> jax.Array:
        descent(v)(x)
        return numbered(x)

    return strategy.run(step, args=(batch(strategy, 5),)).values


def scanned(strategy: dl.Strategy, v: dl.Variable) -> Any:
    def steps(x: jax.Array) -> jax.Array:
        return dl.scan(lambda _, __: (None, descent(v)(x)), None, jnp.arange(3))[1]

    return strategy.run(steps, args=(batch(strategy, 8),)).values


def merged(strategy: dl.Strategy, v: dl.Variable) -> Any:
    def update(host: Any, g: Any) -> None:
        total = host.extended.reduce_to("SUM", g, v)
        host.extended.update(v, lambda copy, g: copy.assign_sub(g), (total,))

    def step(x: jax.Array) -> None:
        dl.get_replica_context().merge_call(update, (x.sum() * jnp.ones((8, 4)),))

    return strategy.run(step, args=(batch(strategy, 8),))


def updated(strategy: dl.Strategy, v: dl.Variable) -> Any:
    def doubled(copy: Any, by: Any) -> Any:
        copy.assign(copy.value() * by)
        return copy.value().sum()

    return strategy.extended.update(v, doubled, (2.0,)).values


def read_after(strategy: dl.Strategy, v: dl.Variable) -> Any:
    def step(x: jax.Array) -> jax.Array:
        v.assign(v.value() * 2)
        total = v.value().sum()
        v.assign_add(dl.get_replica_context().all_reduce("SUM", x.sum()) * jnp.ones((8, 4)))
        return total + v.value()[7, 0]

    return strategy.run(step, args=(batch(strategy, 8),)).values


def scattered(strategy: dl.Strategy, v: dl.Variable) -> None:
    rows = dl.IndexedSlices(jnp.ones((2, 4)), jnp.array([3, 3]), (8, 4))

    def step() -> None:
        v.scatter_sub(rows)

    strategy.run(step)


def differentiated(strategy: dl.Strategy, v: dl.Variable) -> Any:
    def step(x: jax.Array) -> Any:
        loss, gradient = dl.value_and_grad(lambda: jnp.sum((x @ v.value()) ** 2), v)
        v.assign_sub(dl.get_replica_context().all_reduce("MEAN", gradient) * 0.01)
        return loss

    return strategy.run(step, args=(batch(strategy, 8),)).values


def copied(strategy: dl.Strategy, v: dl.Variable) -> Any:
    other = copy.deepcopy(v)
    descended(strategy, other, 8)
    return other.value()


def gathered(strategy: dl.Strategy, v: dl.Variable) -> Any:
    whole = [one.value() for one in v.values]
    return strategy.gather(v, axis=0), strategy.reduce("MEAN", v, axis=0), whole


def assigned_each(strategy: dl.Strategy, v: dl.Variable) -> None:
    v.assign(strategy.run(lambda: v.value() * 2))


PROGRAMS: Final[dict[str, Callable[[dl.Strategy, dl.Variable], Any]]] = {
    "steps": lambda strategy, v: descended(strategy, v, 8, 8),
    "partial batches": lambda strategy, v: descended(strategy, v, 5, 8),
    "a partial batch in one program": descended_in_one_program,
    "scan": scanned,
    "merge_call": merged,
    "update": updated,
    "a read after an assignment": read_after,
    "rows": scattered,
    "value_and_grad": differentiated,
    "deepcopy": copied,
    "gather, reduce and values": gathered,
    "a component for each replica": assigned_each,
}


def outcome(program: str, *, shard: int | bool, **options: Any) -> list[np.ndarray]:
    strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)], shard_variables=shard)
    v = variable(strategy, **options)
    result = PROGRAMS[program](strategy, v)
    assert not shard or parts(v) == [(2, 4)] * 4
    return [np.asarray(v), *map(np.asarray, jax.tree.leaves(result))]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_do_what_they_do_with_copies(program: str) -> None:
    expected, found = outcome(program, shard=False), outcome(program, shard=16)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("program", ["merge_call", "a read after an assignment"])
def test_eager_programs_do_what_compiled_ones_do(program: str) -> None:
    expected = outcome(program, shard=16)
    dl.run_functions_eagerly(True)
    try:
        found = outcome(program, shard=16)
    finally:
        dl.run_functions_eagerly(False)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_aggregations_make_one_value(aggregation: str) -> None:
    held = []
    for shard in (False, 16):
        strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)], shard_variables=shard)
        v = variable(strategy, aggregation=dl.VariableAggregation[aggregation])

        def step(x: jax.Array, v: dl.Variable = v) -> None:
            v.assign(x.sum() * W)

        strategy.run(step, args=(batch(strategy, 8),))
        held.append(np.asarray(v))
    np.testing.assert_allclose(held[1], held[0], rtol=1e-6)


def test_an_eager_step_that_fails_changes_no_part() -> None:
    strategy = divided()
    v = variable(strategy)

    def step() -> None:
        v.assign(v.value() * 2)
        raise KeyError("x")

    dl.run_functions_eagerly(True)
    try:
        with pytest.raises(KeyError):
            strategy.run(step)
    finally:
        dl.run_functions_eagerly(False)
    np.testing.assert_array_equal(v, W)


def test_one_copy_of_a_divided_variable_is_not_assigned() -> None:
    v = variable(divided())
    with pytest.raises(UnsupportedError, match=r"w is divided .* has no copies, so assign of one"):
        v.values[1].assign(W)


def test_effects_happen_once_in_their_order() -> None:
    strategy, heard = divided(), list[str]()
    v = variable(strategy)

    def step(x: jax.Array) -> None:
        g = dl.get_replica_context().all_reduce("SUM", x.sum() * W)
        jax.debug.callback(lambda g: heard.append(f"gradient {np.shape(g)}"), g)
        v.assign_sub(g)
        jax.debug.callback(lambda w: heard.append(f"value {np.shape(w)}"), v.value())

    strategy.run(step, args=(batch(strategy, 8),))
    jax.effects_barrier()
    assert sorted(heard) == ["gradient (8, 4)"] * 4 + ["value (8, 4)"] * 4


def test_a_long_step_needs_no_deep_stack() -> None:
    strategy = divided()
    v = variable(strategy)

    def step(x: jax.Array) -> None:
        g = dl.get_replica_context().all_reduce("SUM", x.sum() * W)
        for _ in range(2 * sys.getrecursionlimit()):
            g = -g
        v.assign(g)

    strategy.run(step, args=(batch(strategy, 8),))
    np.testing.assert_allclose(v, np.arange(64).sum() / 100 * W, rtol=1e-6)


def test_an_empty_layout_keeps_whole_copies_of_each_replica() -> None:
    strategy = divided()
    v = variable(strategy, layout=())
    x = next(iter(strategy.experimental_distribute_dataset([np.arange(4.0, dtype=np.float32)])))
    strategy.run(lambda x: v.assign(jnp.ones((8, 4)) * x.sum()), args=(x,))
    assert [float(copy.numpy()[0, 0]) for copy in v.values] == [0.0, 1.0, 2.0, 3.0]


def test_a_copy_that_was_assigned_alone_is_no_proof() -> None:
    strategy = divided()
    v = variable(strategy)
    with strategy.scope():
        rate = dl.Variable(np.float32(0.5), name="rate")
    rate.values[1].assign(0.25)
    with pytest.raises(
        StructureError, match=r"w is divided .* depends on rate without an all-reduce"
    ):
        strategy.run(lambda: v.assign(v.value() * rate.value()))
    np.testing.assert_array_equal(v, W)


def test_nothing_keeps_whole_copies_that_were_read() -> None:
    v = variable(divided(), np.ones((8, 7), np.float32))
    assert [float(copy.numpy().sum()) for copy in v.values] == [56.0] * 4
    assert len(v.storage.copies()) == 4
    assert all(array.shape != (8, 7) for array in in_flight.waiting())
