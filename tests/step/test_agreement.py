"""Results that all replicas hold alike come back as one `Mirrored` array, and only those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.errors import StructureError
from tests.listening import listening

REPLICAS = 4
DEVICES = [f"CPU:{n}" for n in range(REPLICAS)]


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(DEVICES)


def batch(strategy: dl.Strategy, size: int) -> Any:
    data = dl.data.Dataset.from_tensor_slices(np.arange(size, dtype=np.float32)).batch(size)
    return next(iter(strategy.experimental_distribute_dataset(data)))


def total(value: Any) -> Any:
    return dl.get_replica_context().all_reduce("SUM", value)


def number() -> jax.Array:
    return jnp.asarray(dl.get_replica_context().replica_id_in_sync_group)


def trained(w: jax.Array, x: jax.Array) -> dict[str, Any]:
    slope = jax.nn.relu(total((w * x).sum()))
    return {"w": dl.Mirrored(w - 0.5 * slope), "examples": x.shape[0] + 0 * number()}


@pytest.mark.parametrize("size", [8, 3])
@pytest.mark.usefixtures("eager")
def test_what_comes_of_an_all_reduce_is_one_array(strategy: dl.Strategy, size: int) -> None:
    result = strategy.run(trained, args=(2.0, batch(strategy, size)))
    assert isinstance(result["w"], dl.Mirrored)
    assert result["w"].array.sharding == strategy.mesh.whole
    assert [float(copy) for copy in result["w"].values] == [2.0 - sum(range(size))] * REPLICAS
    assert isinstance(result["examples"], dl.PerReplica)
    assert sum(int(n) for n in result["examples"].values) == size


UNPROVED: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "a local value": (lambda w, x: {"w": dl.Mirrored(w - x.sum())}, r"result\['w'\]", "x"),
    "in a nest": (lambda w, x: (w, [dl.Mirrored(x[:0].sum() + number())]), r"result\[1\]\[0\]", ""),
    "the replica's number": (lambda *_: dl.Mirrored(number()), "result", "its number"),
    "after a branch": (
        lambda *_: dl.Mirrored(jax.lax.cond(number() > 0, lambda: 1.0, lambda: 2.0)),
        "result",
        "its number",
    ),
    "in a loop": (
        lambda *_: dl.Mirrored(jax.lax.fori_loop(0, 3, lambda _, c: c + number(), 0)),
        "result",
        "its number",
    ),
}


def test_what_may_differ_is_refused_by_its_path(strategy: dl.Strategy, eager: bool) -> None:
    for function, path, why in UNPROVED.values():
        with pytest.raises(
            StructureError, match=rf"{path} is returned as Mirrored.*all_reduce"
        ) as raised:
            strategy.run(function, args=(2.0, batch(strategy, 8)))
        assert eager or why in str(raised.value)


@pytest.mark.usefixtures("eager")
def test_ragged_replicas_may_disagree_about_constants(strategy: dl.Strategy) -> None:
    def size(x: jax.Array) -> Any:
        return dl.Mirrored(len(x))

    assert int(strategy.run(size, args=(batch(strategy, 8),)).values[3]) == 2
    with pytest.raises(StructureError, match="result is returned as Mirrored"):
        strategy.run(size, args=(batch(strategy, 6),))


def test_a_refused_step_changes_no_variable(strategy: dl.Strategy, eager: bool) -> None:
    del eager
    with strategy.scope():
        steps = dl.Variable(0, aggregation=dl.VariableAggregation.MEAN, dtype=np.float32)

    def step(x: jax.Array) -> Any:
        steps.assign_add(1.0)
        return dl.Mirrored(x.sum())

    with pytest.raises(StructureError, match="result is returned as Mirrored"):
        strategy.run(step, args=(batch(strategy, 8),))
    assert float(steps) == 0


def test_a_variable_with_diverged_copies_proves_nothing(
    strategy: dl.Strategy,
) -> None:
    with strategy.scope():
        weight = dl.Variable(3.0, name="weight")

    def doubled() -> Any:
        return dl.Mirrored(weight * 2)

    assert float(strategy.run(doubled).values[0]) == 6.0
    strategy.run(lambda: weight.assign(number() + 0.0, read_value=False))
    with pytest.raises(StructureError, match="depends on weight without an all-reduce"):
        strategy.run(doubled)
    weight.assign(4.0)
    assert float(strategy.run(doubled).values[1]) == 8.0
    weight.values[1].assign(5.0)
    with pytest.raises(StructureError, match="weight"):
        strategy.run(doubled)
    weight.values[1].assign(4.0)
    assert float(strategy.run(doubled).values[1]) == 8.0


def test_a_variable_that_follows_another_comes_apart_with_it(strategy: dl.Strategy) -> None:
    with strategy.scope():
        source, target = dl.Variable(1.0), dl.Variable(0.0, name="target")

    def copy() -> None:
        target.assign(source * 2)

    def read() -> Any:
        return dl.Mirrored(target.value())

    strategy.run(copy)
    assert float(strategy.run(read).values[0]) == 2.0
    source.values[0].assign(7.0)
    strategy.run(copy)
    with pytest.raises(StructureError, match="target"):
        strategy.run(read)


@pytest.mark.parametrize("ops", [dl.ReductionToOneDevice(), dl.HierarchicalCopyAllReduce()])
def test_every_algorithm_of_all_reduce_proves_it(ops: dl.CrossDeviceOps) -> None:
    size = 6
    strategy = dl.MirroredStrategy(DEVICES, cross_device_ops=ops)
    result = strategy.run(trained, args=(2.0, batch(strategy, size)))
    assert float(result["w"].values[2]) == 2.0 - sum(range(size))


def test_a_collective_within_some_of_the_replicas_proves_nothing(strategy: dl.Strategy) -> None:
    def halves(x: jax.Array) -> Any:
        sums = jax.lax.psum(x.sum(), "replica", axis_index_groups=[[0, 1], [2, 3]])
        return dl.Mirrored(sums)

    with pytest.raises(StructureError, match="result is returned as Mirrored"):
        strategy.run(halves, args=(batch(strategy, 8),))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("alone", [dl.OneDeviceStrategy("CPU:0"), dl.get_strategy()])
def test_one_replica_gets_plain_arrays(alone: dl.Strategy) -> None:
    result = alone.run(lambda x: {"sum": dl.Mirrored(x.sum()), "x": x}, args=(np.ones(3),))
    assert isinstance(result["sum"], jax.Array)
    assert float(result["sum"]) == 3.0


@pytest.mark.usefixtures("eager")
def test_a_nest_in_one_mirrored_value_is_refused(strategy: dl.Strategy) -> None:
    with pytest.raises(StructureError, match=r"result\[0\] is Mirrored\(.*jax\.tree\.map"):
        strategy.run(lambda: [dl.Mirrored({"w": 1})])


def compilations(strategy: dl.Strategy, function: Any, several: list[tuple[Any, ...]]) -> int:
    """Returns how many programs are compiled for several calls of a function."""
    with listening() as heard:
        for args in several:
            strategy.run(function, args=args)
    return len(heard.of(events.Compile))


def test_a_state_compiles_once_wherever_it_lies(strategy: dl.Strategy) -> None:
    on_mesh = jax.device_put(np.ones(3, np.float32), strategy.mesh.whole)
    states = [
        (np.ones(3, np.float32),),
        (jnp.ones(3),),
        (jax.device_put(np.ones(3, np.float32), jax.devices()[2]),),
        (on_mesh,),
        (dl.Mirrored(on_mesh),),
    ]
    assert compilations(strategy, lambda w: w * 2, states) == 1
    assert compilations(strategy, lambda w: w * 3, states[::-1]) == 1


def test_a_functional_loop_compiles_once(strategy: dl.Strategy) -> None:
    state: Any = {"w": jnp.ones(3), "key": jax.random.key(0), "steps": 0}

    def step(state: Any) -> Any:
        key, own = jax.random.split(state["key"])
        w, steps = state["w"] + total(jax.random.normal(own, (3,))), state["steps"] + 1
        return jax.tree.map(dl.Mirrored, {"w": w, "key": key, "steps": steps})

    with listening() as heard:
        for _ in range(3):
            state = strategy.run(step, args=(state,))
    assert len(heard.of(events.Compile)) == 1
