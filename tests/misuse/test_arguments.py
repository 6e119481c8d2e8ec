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


def _sharded() -> dl.ShardedVariable:
    return dl.ShardedVariable([dl.Variable([1.0]), dl.Variable([2.0])])


def _logs(_: World, value: Any) -> None:
    with dl.record(None) as recording:
        recording.log(loss=value)


def _controller(w: World, **options: Any) -> object:
    class Trainer(dl.StandardTrainer):
        def train_step(self, iterator: Any) -> None:
            next(iterator)

    trainer = options.pop("trainer", Trainer(_distributes(w)(w.dataset)))
    return dl.Controller(global_step=dl.Variable(0), trainer=trainer, **options)


def _checkpoint(w: World) -> dl.train.Checkpoint:
    return dl.train.Checkpoint(weights=w.weights)


def _set_deterministic(_: World, value: Any) -> None:
    dl.data.Options().deterministic = value


def _set_policy(_: World, value: Any) -> None:
    dl.data.Options().experimental_distribute.auto_shard_policy = value


def _restores(w: World, value: Any) -> None:
    iter(_distributes(w)(w.dataset)).restore(value)


def _logs_at(_: World, step: Any) -> None:
    with dl.record(None) as recording:
        recording.log(step, loss=1.0)


def _events(w: World, kind: Any) -> object:
    with dl.Run.open(w.recorded) as run:
        return list(run.events(kind))


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
        "extended.update_non_slot": lambda w, v: w.strategy.extended.update_non_slot(["CPU:0"], v),
        "merge_call": _on_replicas(lambda c, v: c.merge_call(v)),
        "scan": lambda w, v: w.strategy.run(lambda: dl.scan(v, None, jnp.ones(2))),
        "export": lambda _, v: dl.export(v, ()),
        "background": lambda _, v: dl.background(v),
        "Dataset.map": lambda _, v: EIGHT.map(v),
        "Dataset.filter": lambda _, v: EIGHT.filter(v),
        "Dataset.flat_map": lambda _, v: EIGHT.flat_map(v),
        "Dataset.interleave": lambda _, v: EIGHT.interleave(v),
        "Dataset.reduce": lambda _, v: EIGHT.reduce(np.int64(0), v),
        "Dataset.take_while": lambda _, v: EIGHT.take_while(v),
        "Dataset.apply": lambda _, v: EIGHT.apply(v),
        "Dataset.from_generator": lambda _, v: Dataset.from_generator(v),
        "DistributedDataset.reduce": lambda w, v: _distributes(w)(w.dataset).reduce(0, v),
        "ReductionToOneDevice": lambda _, v: dl.ReductionToOneDevice(accumulation_fn=v),
        "TrainSpec": lambda _, v: dl.estimator.TrainSpec(v, max_steps=1),
        "Estimator": lambda w, v: dl.estimator.Estimator(v, model_dir=str(w.folder)),
    },
    "nest": {
        "run args": lambda w, v: w.strategy.run(lambda *_: 0, args=v),
        "run kwargs": lambda w, v: w.strategy.run(lambda **_: 0, kwargs=v),
        "merge_call args": _on_replicas(lambda c, v: c.merge_call(lambda *_: 0, args=v)),
        "extended.update args": lambda w, v: w.strategy.extended.update(
            w.weights, lambda *_: 0, args=v
        ),
    },
    "op": {
        "reduce": lambda w, v: w.strategy.reduce(v, w.x, axis=None),
        "all_reduce": _on_replicas(lambda c, v: c.all_reduce(v, 1.0)),
        "extended.reduce_to": lambda w, v: w.strategy.extended.reduce_to(v, w.x, "CPU:0"),
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
        "Variable.assign_add": lambda w, v: w.weights.assign_add(v),
        "Variable.assign_add on replicas": lambda w, v: w.strategy.run(
            lambda: w.weights.assign_add(v)
        ),
        "VariableCopy.assign": lambda w, v: w.weights.values[0].assign(v),
        "ShardedVariable.assign": lambda _, v: _sharded().assign(v),
        "broadcast_to": lambda w, v: w.strategy.extended.broadcast_to(v, "CPU:1"),
        "nn.compute_average_loss": lambda _, v: dl.nn.compute_average_loss(v),
        "Recording.log": _logs,
    },
    "variable": {
        "extended.update": lambda w, v: w.strategy.extended.update(v, lambda _: 0),
        "extended.read_var": lambda w, v: w.strategy.extended.read_var(v),
        "ShardedVariable": lambda _, v: dl.ShardedVariable([v]),
    },
    "devices": {
        "MirroredStrategy": lambda _, v: dl.MirroredStrategy(v),
        "OneDeviceStrategy": lambda _, v: dl.OneDeviceStrategy(v),
        "CentralStorageStrategy": lambda _, v: dl.experimental.CentralStorageStrategy(v),
        "extended.reduce_to": lambda w, v: w.strategy.extended.reduce_to("SUM", w.x, v),
        "extended.broadcast_to": lambda w, v: w.strategy.extended.broadcast_to(1.0, v),
    },
    "flag": {
        "RunOptions.run_eagerly": lambda _, v: dl.RunOptions(run_eagerly=v),
        "run_functions_eagerly": lambda _, v: dl.run_functions_eagerly(v),
        "Variable.trainable": lambda w, v: _creates(w, trainable=v),
        "Dataset.batch.drop_remainder": lambda _, v: EIGHT.batch(2, drop_remainder=v),
        "Options.deterministic": _set_deterministic,
        "record.overwrite": lambda _, v: dl.record(None, overwrite=v),
    },
    "count": {
        "Dataset.batch": lambda _, v: EIGHT.batch(v),
        "Dataset.padded_batch": lambda _, v: ROWS.padded_batch(v),
        "Dataset.window": lambda _, v: EIGHT.window(v),
        "Dataset.shuffle": lambda _, v: EIGHT.shuffle(v),
        "Dataset.shard": lambda _, v: EIGHT.shard(v, 0),
        "Dataset.interleave": lambda _, v: EIGHT.interleave(lambda _: EIGHT, block_length=v),
        "use_cpu_devices": lambda _, v: dl.use_cpu_devices(v),
        "CheckpointManager.max_to_keep": lambda w, v: dl.train.CheckpointManager(
            _checkpoint(w), w.folder, max_to_keep=v
        ),
        "Controller.steps_per_loop": lambda w, v: _controller(w, steps_per_loop=v),
        "TrainSpec.max_steps": lambda w, v: dl.estimator.TrainSpec(lambda: w.dataset, max_steps=v),
    },
    "whole": {
        "Dataset.repeat": lambda _, v: EIGHT.repeat(v),
        "Dataset.take": lambda _, v: EIGHT.take(v),
        "Dataset.skip": lambda _, v: EIGHT.skip(v),
        "Dataset.prefetch": lambda _, v: EIGHT.prefetch(v),
        "Dataset.shuffle.seed": lambda _, v: EIGHT.shuffle(4, seed=v),
        "Dataset.map.num_parallel_calls": lambda _, v: EIGHT.map(abs, num_parallel_calls=v),
        "NcclAllReduce": lambda _, v: dl.NcclAllReduce(num_packs=v),
        "CommunicationOptions": lambda _, v: dl.experimental.CommunicationOptions(bytes_per_pack=v),
        "record.total_steps": lambda _, v: dl.record(None, total_steps=v),
        "Recording.log.step": _logs_at,
    },
    "text": {
        "Variable.name": lambda w, v: _creates(w, name=v),
        "record.name": lambda _, v: dl.record(None, name=v),
    },
    "path": {
        "record": lambda _, v: dl.record(v),
        "Run.open": lambda _, v: dl.Run.open(v),
        "Checkpoint.save": lambda w, v: _checkpoint(w).save(v),
        "Checkpoint.restore": lambda w, v: _checkpoint(w).restore(v),
        "latest_checkpoint": lambda _, v: dl.train.latest_checkpoint(v),
        "CheckpointManager": lambda w, v: dl.train.CheckpointManager(_checkpoint(w), v),
        "load_exported": lambda _, v: dl.load_exported(v),
        "TFRecordWriter": lambda _, v: io.TFRecordWriter(v),
        "TFRecordDataset": lambda _, v: dl.data.TFRecordDataset(v),
        "Dataset.list_files": lambda _, v: Dataset.list_files(v),
        "Dataset.cache": lambda _, v: EIGHT.cache(v),
        "Dataset.load": lambda _, v: Dataset.load(v),
        "read_file": lambda _, v: io.read_file(v),
    },
    "object": {
        "run.options": lambda w, v: w.strategy.run(lambda: 0, options=v),
        "experimental_set_strategy": lambda _, v: dl.experimental_set_strategy(v),
        "MirroredStrategy.cross_device_ops": lambda _, v: dl.MirroredStrategy(
            ["CPU:0"], cross_device_ops=v
        ),
        "MultiWorkerMirroredStrategy": lambda _, v: dl.MultiWorkerMirroredStrategy(v),
        "ParameterServerStrategy": lambda _, v: dl.ParameterServerStrategy(v),
        "TPUStrategy": lambda _, v: dl.TPUStrategy(v),
        "ClusterCoordinator": lambda _, v: dl.coordinator.ClusterCoordinator(v),
        "ClusterSpec": lambda _, v: dl.ClusterSpec(v),
        "Server": lambda _, v: dl.Server(v),
        "Variable.aggregation": lambda w, v: _creates(w, aggregation=v),
        "Variable.synchronization": lambda w, v: _creates(w, synchronization=v),
        "Variable.dtype": lambda w, v: _creates(w, dtype=v),
        "experimental_distribute_dataset.options": lambda w, v: _distributes(w)(w.dataset, v),
        "InputOptions": lambda _, v: dl.InputOptions(experimental_replication_mode=v),
        "DistributedIterator.restore": _restores,
        "Dataset.with_options": lambda _, v: EIGHT.with_options(v),
        "Dataset.zip": lambda _, v: Dataset.zip(v),
        "Dataset.concatenate": lambda _, v: EIGHT.concatenate(v),
        "Dataset.sample_from_datasets": lambda _, v: Dataset.sample_from_datasets(v),
        "Dataset.filter returned": lambda _, v: _first(EIGHT.filter(lambda _: v)),
        "Dataset.flat_map returned": lambda _, v: _first(EIGHT.flat_map(lambda _: v)),
        "AutoShardPolicy": _set_policy,
        "parse_single_example": lambda _, v: io.parse_single_example(v, FEATURES),
        "parse_single_example.features": lambda _, v: io.parse_single_example(b"", v),
        "decode_image": lambda _, v: io.decode_image(v),
        "CheckpointManager.checkpoint": lambda w, v: dl.train.CheckpointManager(v, w.folder),
        "BackupAndRestore": lambda w, v: dl.BackupAndRestore(v, w.folder),
        "Controller.trainer": lambda w, v: _controller(w, trainer=v),
        "Controller.strategy": lambda w, v: _controller(w, strategy=v),
        "metrics.Metric": lambda _, v: dl.metrics.Metric(v),
        "watch": lambda _, v: dl.watch(v),
        "Run.events.kind": _events,
    },
}
"""One argument of a verb each, by its kind."""


CASES: Final = [(kind, name) for kind, calls in ROWS_OF.items() for name in calls]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_an_argument_refuses_wrong_values_of_its_kind(world: World, kind: str, name: str) -> None:
    found = [_fault(world, ROWS_OF[kind][name], make(world)) for make in WRONG[kind]]
    assert [fault for fault in found if fault] == []
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
