"""Things that have ended, were closed or lost their memory: each verb of them gives what is
left, or a typed error with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.data import Dataset
from distlab.errors import (
    ClusterError,
    ContextError,
    DonatedError,
    InvalidArgumentError,
    OutOfRangeError,
    RecordError,
)
from tests.misuse.world import World, has_remedy

pytestmark = pytest.mark.timeout(240)  # no misuse may hang

Verb: TypeAlias = Callable[[Any], object]

EAGERLY: Final = dl.RunOptions(run_eagerly=True)


def _require(error: type[Exception], verb: Verb, thing: Any) -> None:
    with pytest.raises(error) as caught:
        verb(thing)
    assert type(caught.value) is error
    assert has_remedy(str(caught.value))


# ---- recordings and runs


def test_a_closed_recording(world: World) -> None:
    with dl.record("run") as recording:
        recording.log(1, loss=1.0)
    for verb in (
        lambda: recording.log(1, loss=2.0),
        lambda: recording.capture(1),
        recording.__enter__,
    ):
        _require(RecordError, lambda call: call(), verb)
    recording.close("failed")  # closing twice does nothing
    with dl.Run.open("run") as run:
        assert run.summary()["status"] == "finished"
        assert run.summary()["metrics"] == {"loss": 1.0}


_OF_A_RUN: Final[tuple[Verb, ...]] = (
    lambda run: list(run.events()),
    lambda run: run.since(0),
    lambda run: list(run.between(0, 1)),
    lambda run: next(run.follow()),
    lambda run: run.seconds,
    lambda run: run.summary(),
    lambda run: run.advice(),
    lambda run: run.programs(),
    lambda run: run.to_pandas("step"),
    lambda run: run.export("events.jsonl"),
    dl.watch,
)


def test_a_closed_run(world: World) -> None:
    dl.record("run").close()
    run = dl.Run.open("run")
    run.close()
    for verb in _OF_A_RUN:
        _require(RecordError, verb, run)
    run.close()
    assert repr(run) == "<Run 'run' in run>"
    assert not (world.folder / "events.jsonl").exists()


# ---- iterators


def test_an_exhausted_iterator_stays_exhausted(world: World) -> None:
    distributed = iter(world.strategy.experimental_distribute_dataset(Dataset.range(4).batch(4)))
    legacy = world.strategy.make_dataset_iterator(Dataset.range(4).batch(4))
    plain = iter(Dataset.range(1))
    start = distributed.state()
    for iterator in distributed, plain:
        next(iterator)
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)
            _require(OutOfRangeError, lambda i: i.get_next(), iterator)
            assert not iterator.get_next_as_optional().has_value()
            _require(InvalidArgumentError, lambda i: i.get_next_as_optional().get_value(), iterator)
    legacy.get_next()
    _require(OutOfRangeError, lambda i: i.get_next(), legacy)
    _require(OutOfRangeError, lambda i: world.strategy.experimental_run(lambda x: x, i), legacy)
    legacy.initialize()
    distributed.restore(start)
    for iterator in distributed, legacy:  # a start is a new end
        assert [int(part[0]) for part in iterator.get_next().values] == [0, 1, 2, 3]
        _require(OutOfRangeError, lambda i: i.get_next(), iterator)


# ---- clusters


def test_stopped_servers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTLAB_START_SECONDS", "0.1")
    cluster = dl.ClusterSpec({"worker": ["ended-a:1"], "ps": ["ended-b:1"]})
    servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    strategy = dl.ParameterServerStrategy(resolver)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    result = coordinator.schedule(pow, (2, 3))
    for server in servers:
        server.stop()
        server.stop()
    assert coordinator.fetch(result) == 8  # strategies that were made before go on
    _require(ClusterError, dl.ParameterServerStrategy, resolver)
    servers[0].join()
    servers[0].start()
    _require(ClusterError, dl.ParameterServerStrategy, resolver)
    servers[1].start()
    assert dl.ParameterServerStrategy(resolver).num_workers == 1
    for server in servers:
        server.stop()


# ---- contexts, loops and threads


def test_contexts_that_were_left(world: World) -> None:
    scope = world.strategy.scope()
    for _ in range(2):  # it may be entered again
        with scope:
            assert dl.get_strategy() is world.strategy
            dl.Variable(1.0)
    _require(ContextError, lambda s: s.__exit__(None, None, None), scope)
    assert not dl.has_strategy()
    kept: list[dl.ReplicaContext] = []
    world.strategy.run(lambda: kept.append(dl.get_replica_context()))
    for verb in (
        lambda c: c.all_reduce("SUM", 1.0),
        lambda c: c.all_gather(jnp.ones(1), 0),
        lambda c: c.merge_call(lambda _: 1),
        lambda c: c.replica_id_in_sync_group,
    ):
        _require(ContextError, verb, kept[0])


# ---- memory that was given away


def _donated(w: World) -> Any:
    value: Any = w.strategy.run(lambda: jnp.ones(2))
    w.strategy.run(lambda a: a * 2, args=(value,), options=dl.RunOptions(donate_argnums=0))
    return value


_USES: Final[dict[str, Callable[[World, Any], object]]] = {
    "values": lambda _, x: x.values,
    "reduce": lambda w, x: w.strategy.reduce("SUM", x, axis=None),
    "experimental_local_results": lambda w, x: w.strategy.experimental_local_results(x),
    "run": lambda w, x: w.strategy.run(lambda a: a, args=(x,)),
    "run eagerly": lambda w, x: w.strategy.run(lambda a: a, args=(x,), options=EAGERLY),
    "assign": lambda w, x: w.weights.assign(x),
    "assign on replicas": lambda w, x: w.strategy.run(lambda: w.weights.assign(x)),
}


def test_a_donated_value_is_refused(world: World) -> None:
    for use in _USES.values():
        value = _donated(world)
        _require(DonatedError, partial(use, world), value)
        assert "deleted" in repr(value)
    world.require_unharmed()


_READS: Final[dict[str, Callable[[World, dl.Variable], object]]] = {
    "value": lambda _, v: v.value(),
    "arithmetic": lambda _, v: v + 1,
    "assign_add": lambda _, v: v.assign_add(jnp.ones(2)),
    "reduce": lambda w, v: w.strategy.reduce("MEAN", v, axis=None),
    "run": lambda w, v: w.strategy.run(v.value),
    "run eagerly": lambda w, v: w.strategy.run(v.value, options=EAGERLY),
}


def test_a_variable_whose_value_was_donated_is_refused(world: World) -> None:
    for read in _READS.values():
        with world.strategy.scope():
            variable = dl.Variable(jnp.ones(2), name="given")
        variable.storage.array.delete()  # as a function of jax.jit does that donates the value
        _require(DonatedError, partial(read, world), variable)
        variable.assign(jnp.array([5.0, 6.0]))  # it can have a new value
        assert variable.numpy().tolist() == [5.0, 6.0]
    world.require_unharmed()
