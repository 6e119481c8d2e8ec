"""The verbs of checkpoints, exported functions, recordings, metrics and clusters, each with the
places from which it may be called."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import jax
import jax.numpy as jnp

import distlab as dl
from tests.misuse.places import ALL, AT_ONCE, CROSS, REPLICAS, Row
from tests.misuse.world import World

_numbers: Final = itertools.count()
_BETWEEN_STEPS: Final = AT_ONCE - {"update"} | {"another_scope"}
_WITH_NUMBERS: Final = AT_ONCE | {"another_scope", "eager_replicas", "eager_replicas_of_another"}
_UNTRACED: Final = _WITH_NUMBERS | {"eager_merge_call"}
_IN_NO_SCOPE: Final = CROSS - {"scope", "merge_call", "eager_merge_call", "update"}


def _new(w: World) -> Path:
    return w.folder / str(next(_numbers))


@cache
def _coordinator() -> dl.coordinator.ClusterCoordinator:
    cluster = dl.ClusterSpec({"worker": ["places-a:1"], "ps": ["places-b:1"]})
    servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
    for server in servers:
        server.stop()
    return coordinator


@cache
def _double() -> dl.Exported:
    return dl.export(lambda x: 2 * x, jax.ShapeDtypeStruct((2,), jnp.float32))


def _server(_: World) -> None:
    dl.Server({"worker": [f"place-{next(_numbers)}:1"]}).stop()


def _restored(w: World) -> bool:
    return bool(dl.train.Checkpoint(weights=w.weights).restore(w.checkpoint).restored)


def _managed(w: World) -> bool:
    checkpoint = dl.train.Checkpoint(weights=w.weights)
    return bool(dl.train.CheckpointManager(checkpoint, _new(w)).save())


def _logged(w: World) -> None:
    w.recording.log(next(_numbers), loss=jnp.ones(()))


def _read(w: World) -> float:
    with dl.Run.open(w.recorded) as run:
        return sum(value for event in run.events("metric") for value in _values(event))


def _values(event: object) -> Iterable[float]:
    assert isinstance(event, dl.events.Metric)
    return event.values.values()


def _drawn(w: World) -> bool:
    with dl.Run.open(w.recorded) as run:
        return bool(run.to_tensorboard(_new(w)))


def _written(w: World) -> bool:
    with dl.Run.open(w.recorded) as run:
        return bool(run.export(_new(w).with_suffix(".jsonl")))


def _scheduled(_: World) -> object:
    return _coordinator().fetch(_coordinator().schedule(pow, (2, 3)))


VERBS_OF_FILES: Final[dict[str, Row]] = {
    "Checkpoint": Row(lambda w: bool(dl.train.Checkpoint(weights=w.weights)), ALL),
    "Checkpoint.save": Row(
        lambda w: bool(dl.train.Checkpoint(weights=w.weights).save(_new(w))), _BETWEEN_STEPS
    ),
    "Checkpoint.restore": Row(_restored, _BETWEEN_STEPS),
    "CheckpointManager.save": Row(_managed, _BETWEEN_STEPS),
    "latest_checkpoint": Row(lambda w: dl.train.latest_checkpoint(_new(w)), ALL),
    "load_variable": Row(lambda w: dl.train.load_variable(w.checkpoint, "weights"), ALL, 3.0),
    "list_variables": Row(lambda w: len(dl.train.list_variables(w.checkpoint)), ALL),
    "export": Row(lambda w: bool(dl.export(lambda x: w.weights * x, jnp.ones(2))), ALL),
    "Exported": Row(lambda _: _double()(jnp.ones(2)), ALL, 4.0),
    "Exported.save": Row(lambda w: bool(_double().save(_new(w))), ALL),
    "load_exported": Row(lambda w: bool(dl.load_exported(_double().save(_new(w)))), ALL),
    "Recording.log": Row(_logged, _WITH_NUMBERS),
    "Run": Row(_read, ALL, 2.0),
    "Run.to_tensorboard": Row(_drawn, ALL),
    "Run.export": Row(_written, ALL),
    "loggers.TensorBoard": Row(lambda w: bool(dl.loggers.TensorBoard(_new(w))), ALL),
    "metrics.Mean": Row(lambda _: bool(dl.metrics.Mean()), _WITH_NUMBERS),
    "Mean.update_state": Row(
        lambda w: w.mean.update_state(jnp.ones(2)), AT_ONCE | REPLICAS | {"scan_on_replicas"}
    ),
    "Mean.result": Row(
        lambda w: bool(w.mean.result().shape),
        ALL - {"replicas_of_another", "eager_replicas_of_another", "jit"},
    ),
    "Server": Row(_server, ALL),
    "ParameterServerStrategy.run": Row(
        lambda _: _coordinator().strategy.run(lambda: jnp.ones(2)), _IN_NO_SCOPE, 2.0
    ),
    "ClusterCoordinator.schedule": Row(_scheduled, _UNTRACED, 8.0),
    "ClusterCoordinator.join": Row(lambda _: _coordinator().join(), ALL),
    "create_per_worker_dataset": Row(
        lambda _: bool(_coordinator().create_per_worker_dataset(lambda: dl.data.Dataset.range(2))),
        _IN_NO_SCOPE,
    ),
    "MultiWorkerMirroredStrategy": Row(lambda _: repr(dl.MultiWorkerMirroredStrategy()), ALL),
    "OneDeviceStrategy": Row(lambda _: repr(dl.OneDeviceStrategy("CPU:0")), ALL),
}
