"""Arguments of public verbs: each refuses three wrong values of its kind with a typed error.

The message names the value and the remedy, and nothing has changed. Values that only a slip of
the fingers makes are left to Python and JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import io
from distlab.data import Dataset
from distlab.errors import DistlabError
from tests.misuse.world import World, has_remedy, names

pytestmark = pytest.mark.timeout(240)  # no misuse may hang

Call: TypeAlias = Callable[[World, Any], object]
Make: TypeAlias = Callable[[World], Any]


def _of_other(w: World) -> Any:
    return w.other().experimental_distribute_values_from_function(lambda _: jnp.ones(2))


def _same(value: Any) -> Make:
    return lambda _: value


WRONG: Final[dict[str, tuple[Make, Make, Make]]] = {
    "whole": (_same(1.5), _same("abc"), _same([1, 2])),
    "count": (_same(0), _same(1.5), _same("abc")),
    "number": (_same("abc"), _same([1, 2]), _same(jax.random.key(0))),
    "flag": (_same("no"), _same(1.5), _same([1, 2])),
    "text": (_same(3), _same(1.5), _same({"a": 1})),
    "path": (_same(3), _same(1.5), _same({"a": 1})),
    "function": (_same(3), _same("abc"), _same([1, 2])),
    "nest": (_same(3), _same("abc"), lambda w: w.x),
    "op": (_same("max"), _same(3), _same(None)),
    "axis": (_same("batch"), _same(1.5), _same({"a": 1})),
    "array": (_same("abc"), _same(object()), _same([[1], [1, 2]])),
    "replicas": (_of_other, _same("abc"), _same(1.0)),
    "variable": (_same(1.0), _same("abc"), lambda w: w.x),
    "devices": (_same(8), _same("abc"), _same([1.5])),
    "object": (_same(3), _same("abc"), _same(object())),
}
"""Three wrong values of each kind of argument."""

EIGHT: Final = Dataset.range(8)
ROWS: Final = EIGHT.map(lambda n: np.ones(n, np.float32))
FEATURES: Final = {"x": io.FixedLenFeature([], "int64")}


def _first(dataset: Any) -> object:
    return next(iter(dataset), None)


def _creates(w: World, **options: Any) -> object:
    with w.strategy.scope():
        return dl.Variable(1.0, **options)


def _on_replicas(call: Callable[[dl.ReplicaContext, Any], object]) -> Call:
    return lambda w, v: w.strategy.run(lambda: call(dl.get_replica_context(), v))


def _distributes(w: World) -> Any:
    return w.strategy.experimental_distribute_dataset


def _logs(_: World, value: Any) -> None:
    with dl.record(None) as recording:
        recording.log(loss=value)


def _checkpoint(w: World) -> dl.train.Checkpoint:
    return dl.train.Checkpoint(weights=w.weights)


def _logs_at(_: World, step: Any) -> None:
    with dl.record(None) as recording:
        recording.log(step, loss=1.0)


ROWS_OF: Final[dict[str, dict[str, Call]]] = {
    "function": {
        "run": lambda w, v: w.strategy.run(v),
        "experimental_distribute_values_from_function": lambda w, v: (
            w.strategy.experimental_distribute_values_from_function(v)
        ),
        "distribute_datasets_from_function": lambda w, v: (
            w.strategy.distribute_datasets_from_function(v)
        ),
        "extended.update": lambda w, v: w.strategy.extended.update(w.weights, v),
        "merge_call": _on_replicas(lambda c, v: c.merge_call(v)),
        "scan": lambda w, v: w.strategy.run(lambda: dl.scan(v, None, jnp.ones(2))),
        "export": lambda _, v: dl.export(v, ()),
        "Dataset.map": lambda _, v: EIGHT.map(v),
        "Dataset.filter": lambda _, v: EIGHT.filter(v),
        "Dataset.interleave": lambda _, v: EIGHT.interleave(v),
        "Dataset.reduce": lambda _, v: EIGHT.reduce(np.int64(0), v),
        "Dataset.from_generator": lambda _, v: Dataset.from_generator(v),
        "Estimator": lambda w, v: dl.estimator.Estimator(v, model_dir=str(w.folder)),
    },
    "nest": {
        "run args": lambda w, v: w.strategy.run(lambda *_: 0, args=v),
        "merge_call args": _on_replicas(lambda c, v: c.merge_call(lambda *_: 0, args=v)),
    },
    "op": {
        "reduce": lambda w, v: w.strategy.reduce(v, w.x, axis=None),
        "all_reduce": _on_replicas(lambda c, v: c.all_reduce(v, 1.0)),
    },
    "axis": {
        "reduce": lambda w, v: w.strategy.reduce("SUM", w.x, axis=v),
        "gather": lambda w, v: w.strategy.gather(w.x, axis=v),
        "all_gather": _on_replicas(lambda c, v: c.all_gather(jnp.ones(2), v)),
    },
    "replicas": {
        "reduce": lambda w, v: w.strategy.reduce("SUM", [v, object()], axis=None),
        "gather": lambda w, v: w.strategy.gather(v, axis=0),
        "extended.reduce_to": lambda w, v: w.strategy.extended.reduce_to("SUM", v, "nowhere"),
    },
    "array": {
        "Variable": lambda _, v: dl.Variable(v),
        "Variable.assign": lambda w, v: w.weights.assign(v),
        "Variable.assign_add on replicas": lambda w, v: w.strategy.run(
            lambda: w.weights.assign_add(v)
        ),
        "nn.compute_average_loss": lambda _, v: dl.nn.compute_average_loss(v),
        "Recording.log": _logs,
    },
    "variable": {
        "extended.update": lambda w, v: w.strategy.extended.update(v, lambda _: 0),
        "ShardedVariable": lambda _, v: dl.ShardedVariable([v]),
    },
    "devices": {
        "MirroredStrategy": lambda _, v: dl.MirroredStrategy(v),
        "OneDeviceStrategy": lambda _, v: dl.OneDeviceStrategy(v),
        "extended.reduce_to": lambda w, v: w.strategy.extended.reduce_to("SUM", w.x, v),
    },
    "flag": {
        "RunOptions.run_eagerly": lambda _, v: dl.RunOptions(run_eagerly=v),
        "Variable.trainable": lambda w, v: _creates(w, trainable=v),
        "Dataset.batch.drop_remainder": lambda _, v: EIGHT.batch(2, drop_remainder=v),
    },
    "count": {
        "Dataset.batch": lambda _, v: EIGHT.batch(v),
        "Dataset.padded_batch": lambda _, v: ROWS.padded_batch(v),
        "Dataset.shuffle": lambda _, v: EIGHT.shuffle(v),
        "use_cpu_devices": lambda _, v: dl.use_cpu_devices(v),
    },
    "whole": {
        "Dataset.repeat": lambda _, v: EIGHT.repeat(v),
        "Dataset.take": lambda _, v: EIGHT.take(v),
        "NcclAllReduce": lambda _, v: dl.NcclAllReduce(num_packs=v),
        "Recording.log.step": _logs_at,
    },
    "text": {
        "Variable.name": lambda w, v: _creates(w, name=v),
        "record.name": lambda _, v: dl.record(None, name=v),
    },
    "path": {
        "record": lambda _, v: dl.record(v),
        "Checkpoint.save": lambda w, v: _checkpoint(w).save(v),
        "Checkpoint.restore": lambda w, v: _checkpoint(w).restore(v),
        "load_exported": lambda _, v: dl.load_exported(v),
        "TFRecordDataset": lambda _, v: dl.data.TFRecordDataset(v),
        "Dataset.list_files": lambda _, v: Dataset.list_files(v),
    },
    "object": {
        "run.options": lambda w, v: w.strategy.run(lambda: 0, options=v),
        "experimental_set_strategy": lambda _, v: dl.experimental_set_strategy(v),
        "MirroredStrategy.cross_device_ops": lambda _, v: dl.MirroredStrategy(
            ["CPU:0"], cross_device_ops=v
        ),
        "MultiWorkerMirroredStrategy": lambda _, v: dl.MultiWorkerMirroredStrategy(v),
        "ParameterServerStrategy": lambda _, v: dl.ParameterServerStrategy(v),
        "ClusterSpec": lambda _, v: dl.ClusterSpec(v),
        "Variable.aggregation": lambda w, v: _creates(w, aggregation=v),
        "Variable.synchronization": lambda w, v: _creates(w, synchronization=v),
        "Variable.dtype": lambda w, v: _creates(w, dtype=v),
        "experimental_distribute_dataset.options": lambda w, v: _distributes(w)(w.dataset, v),
        "Dataset.with_options": lambda _, v: EIGHT.with_options(v),
        "Dataset.concatenate": lambda _, v: EIGHT.concatenate(v),
        "Dataset.filter returned": lambda _, v: _first(EIGHT.filter(lambda _: v)),
        "parse_single_example": lambda _, v: io.parse_single_example(v, FEATURES),
        "BackupAndRestore": lambda w, v: dl.BackupAndRestore(v, w.folder),
    },
}
"""One argument of a verb each, by its kind."""


@pytest.mark.parametrize("kind", ROWS_OF)
def test_arguments_refuse_wrong_values_of_their_kind(world: World, kind: str) -> None:
    found = [
        f"{name}: {fault}"
        for name, call in ROWS_OF[kind].items()
        for make in WRONG[kind]
        if (fault := _fault(world, call, make(world)))
    ]
    assert found == []
    world.require_same_state()


def _fault(world: World, call: Call, value: Any) -> str:
    """Returns what is wrong with the outcome of a call with a wrong value."""
    try:
        call(world, value)
    except DistlabError as error:
        if not names(value, str(error)):
            return f"{value!r:.80} is not named: {error}"
        return "" if has_remedy(str(error)) else f"no remedy: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
        return f"{value!r:.80} raises no error of distlab: {error!r:.300}"
    return f"{value!r:.80} was accepted"
