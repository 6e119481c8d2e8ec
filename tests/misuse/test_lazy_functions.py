"""Generator and async functions: verbs that call a function refuse them, as nothing would run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import StructureError
from tests.misuse.table import has_remedy
from tests.misuse.world import World

BODIES: Final[list[str]] = []
"""What ran of the functions: nothing may."""


async def coroutine(*_: Any) -> float:
    BODIES.append("coroutine")
    return 1.0


def generator(*_: Any) -> Iterator[float]:
    BODIES.append("generator")
    yield 1.0


async def asynchronous_generator(*_: Any) -> AsyncIterator[float]:
    BODIES.append("asynchronous generator")
    yield 1.0


class Lazy:
    """An object whose call is a coroutine."""

    async def __call__(self, *_: Any) -> float:
        BODIES.append("call")
        return 1.0

    async def method(self, *_: Any) -> float:
        BODIES.append("method")
        return 1.0


LAZY: Final[dict[str, Callable[..., Any]]] = {
    "coroutine": coroutine,
    "generator": generator,
    "asynchronous generator": asynchronous_generator,
    "object": Lazy(),
    "method": Lazy().method,
    "partial": functools.partial(coroutine, 1),
}


def _schedule(w: World, fn: Callable[..., Any]) -> object:
    cluster = dl.ClusterSpec({"worker": ["lazy-a:1"], "ps": ["lazy-b:1"]})
    servers = [dl.Server(cluster, job_name=job, task_index=0) for job in ("worker", "ps")]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    try:
        coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
        return coordinator.schedule(fn)
    finally:
        for server in servers:
            server.stop()


def _merge(w: World, fn: Callable[..., Any], *, eagerly: bool) -> object:
    def on_replica() -> object:
        return dl.get_replica_context().merge_call(fn)

    return w.strategy.run(on_replica, options=dl.RunOptions(run_eagerly=eagerly))


VERBS: Final[dict[str, Callable[[World, Callable[..., Any]], object]]] = {
    "run": lambda w, fn: w.strategy.run(fn),
    "run eagerly": lambda w, fn: w.strategy.run(fn, options=dl.RunOptions(run_eagerly=True)),
    "run of no strategy": lambda _, fn: dl.get_strategy().run(fn),
    "merge_call": functools.partial(_merge, eagerly=False),
    "merge_call eagerly": functools.partial(_merge, eagerly=True),
    "update": lambda w, fn: w.strategy.extended.update(w.own, fn),
    "update_non_slot": lambda w, fn: w.strategy.extended.update_non_slot([], fn),
    "values": lambda w, fn: w.strategy.experimental_distribute_values_from_function(fn),
    "background": lambda _, fn: dl.background(fn),
    "schedule": _schedule,
    "export": lambda _, fn: dl.export(fn, jnp.zeros(2)),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fn", LAZY)
def test_a_function_whose_body_would_not_run_is_refused(verb: str, fn: str, tmp_path: Path) -> None:
    BODIES.clear()
    with pytest.raises(StructureError, match="starts only when something iterates") as refused:
        VERBS[verb](World(tmp_path), LAZY[fn])
    assert has_remedy(str(refused.value))
    assert BODIES == []


def test_plain_objects_and_functions_with_decorators_run(tmp_path: Path) -> None:
    class Step:
        def __call__(self) -> float:
            return 2.0

    @functools.wraps(coroutine)
    def awaited() -> float:
        return 3.0

    strategy = World(tmp_path).strategy
    assert strategy.run(Step()) == 2.0
    assert strategy.run(functools.partial(Step())) == 2.0
    assert strategy.run(awaited) == 3.0
    assert dl.background(Step()).result() == 2.0
