"""Nests that hold themselves, and dicts whose keys have no order: JAX can't take them apart.

A nest that holds itself would leave JAX unusable in the rest of the thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.coordinator import ClusterCoordinator
from distlab.errors import StructureError
from tests.misuse.table import has_remedy
from tests.strategies.parameter_servers import strategy_of

EAGER: Final = dl.RunOptions(run_eagerly=True)


class Tools(NamedTuple):
    """What the verbs belong to."""

    strategy: dl.Strategy
    coordinator: ClusterCoordinator


class Pair(NamedTuple):
    """A nest of JAX's."""

    one: Any
    other: Any


@pytest.fixture(scope="module")
def tools() -> Tools:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    return Tools(strategy, ClusterCoordinator(strategy_of(1)))


def endless_list() -> Any:
    nest: list[Any] = [jnp.ones(2)]
    nest.append(nest)
    return nest


def endless_twice() -> Any:
    nest: list[Any] = []
    nest += [nest, nest]
    return nest


def endless_dict() -> Any:
    nest: dict[str, Any] = {"x": 1.0}
    nest["me"] = (nest,)
    return nest


def endless_deep() -> Any:
    inner: dict[str, Any] = OrderedDict(x=1.0)
    inner["me"] = Pair(1.0, inner)
    return {"deep": [{"er": inner}]}


def without_order() -> Any:
    return {1: jnp.ones(2), "a": jnp.ones(2)}


def identity(x: Any) -> Any:
    return x


def in_replica(verb: Callable[[dl.ReplicaContext, Any], Any]) -> Callable[[Tools, Any], Any]:
    return lambda t, v: t.strategy.run(lambda: verb(dl.get_replica_context(), v))


VERBS: Final[dict[str, Callable[[Tools, Any], Any]]] = {
    "run": lambda t, v: t.strategy.run(identity, args=(v,)),
    "run by name": lambda t, v: t.strategy.run(identity, kwargs={"x": v}),
    "run eagerly": lambda t, v: t.strategy.run(identity, args=(v,), options=EAGER),
    "run without a strategy": lambda _, v: dl.get_strategy().run(identity, args=(v,)),
    "result of run": lambda t, v: t.strategy.run(lambda: v),
    "result of run eagerly": lambda t, v: t.strategy.run(lambda: v, options=EAGER),
    "reduce": lambda t, v: t.strategy.reduce("SUM", v, axis=None),
    "gather": lambda t, v: t.strategy.gather(v, axis=0),
    "experimental_local_results": lambda t, v: t.strategy.experimental_local_results(v),
    "replicate": lambda t, v: t.strategy.replicate(v),
    "distribute values": lambda t, v: t.strategy.experimental_distribute_values_from_function(
        lambda _: v
    ),
    "all_reduce": in_replica(lambda c, v: c.all_reduce("SUM", v)),
    "all_gather": in_replica(lambda c, v: c.all_gather(v, 0)),
    "scan": lambda t, v: t.strategy.run(lambda: dl.scan(lambda c, x: (c, x), v, jnp.ones(3))),
    "schedule": lambda t, v: t.coordinator.schedule(identity, (v,)),
    "schedule by name": lambda t, v: t.coordinator.schedule(identity, kwargs={"x": v}),
    "fetch": lambda t, v: t.coordinator.fetch(v),
    "fetch of a result": lambda t, v: t.coordinator.schedule(lambda: v).fetch(),
    "spec of export": lambda _, v: dl.export(identity, v),
    "result of export": lambda _, v: dl.export(lambda _: v, jnp.ones(2)),
    "flatten": lambda _, v: dl.nest.flatten(v),
    "map_structure": lambda _, v: dl.nest.map_structure(identity, v),
    "pack_sequence_as": lambda _, v: dl.nest.pack_sequence_as(v, [1]),
    "assert_same_structure": lambda _, v: dl.nest.assert_same_structure(v, v),
    "flatten_up_to": lambda _, v: dl.nest.flatten_up_to(v, v),
    "map_structure_up_to": lambda _, v: dl.nest.map_structure_up_to(v, identity, v),
}
"""The verbs that take nests."""


@pytest.mark.parametrize("make", [endless_list, endless_twice, endless_dict, endless_deep])
@pytest.mark.parametrize("verb", [*VERBS, "merge_call"])
def test_a_nest_that_holds_itself_is_refused(
    verb: str, make: Callable[[], Any], tools: Tools
) -> None:
    merge = in_replica(lambda c, v: c.merge_call(lambda _, x: x, args=(v,)))
    with pytest.raises(StructureError, match=r"holds itself.* in it is .* again\. Remove") as told:
        {**VERBS, "merge_call": merge}[verb](tools, make())
    assert has_remedy(str(told.value))
    assert _room() > 300


@pytest.mark.parametrize("verb", VERBS)
def test_keys_without_an_order_are_refused(verb: str, tools: Tools) -> None:
    with pytest.raises(StructureError, match=r"\[1, 'a'\]\. Use keys of one type") as told:
        VERBS[verb](tools, without_order())
    assert has_remedy(str(told.value))


def test_the_place_is_named(tools: Tools) -> None:
    with pytest.raises(StructureError) as told:
        tools.strategy.run(identity, args=(1.0, endless_deep()))
    place = "[1]['deep'][0]['er']"
    assert f"args holds itself, and so has no end: {place}['me'][1] in it is {place} again" in str(
        told.value
    )


def test_elements_and_values_that_hold_themselves_are_refused() -> None:
    for source in (dl.data.Dataset.from_tensors, dl.data.Dataset.from_tensor_slices):
        for make in (endless_list, endless_dict):
            with pytest.raises(StructureError, match="An element holds itself"):
                source(make())
    with pytest.raises(StructureError, match="An element holds itself"):
        list(dl.data.Dataset.range(2).map(lambda _: endless_dict()))
    for make in (endless_list, endless_dict):
        with pytest.raises(StructureError, match=r"The value of variable.* holds itself"):
            dl.Variable(make())
    assert _room() > 300


def test_deep_nests_and_parts_that_come_twice_are_nests(tools: Tools) -> None:
    shared = [jnp.ones(2)]
    nest: Any = (shared, shared)
    for _ in range(150):
        nest = [nest]
    result = tools.strategy.run(identity, args=(nest,))
    assert [
        part.values[1].tolist()
        for part in jax.tree.leaves(result, is_leaf=lambda v: isinstance(v, dl.PerReplica))
    ] == [[1.0, 1.0]] * 2
    assert len(dl.nest.flatten(nest)) == 2


def _room() -> int:
    """Returns how many calls of functions still fit into each other."""

    def inner(depth: int) -> int:
        try:
            return inner(depth + 1)
        except RecursionError:
            return depth

    return inner(0)
