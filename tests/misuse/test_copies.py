"""`copy`, `deepcopy` and `pickle` of public objects: an equal object, or a typed error."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.control.loops import Controlled, loops
from distlab.errors import DistlabError
from tests.misuse.table import has_remedy

WAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}
"""Ways to copy an object."""

EQUAL: Final = {
    "PerReplica": set(WAYS),
    "Mirrored": set(WAYS),
    "Dataset": set(WAYS),
    "RunOptions": set(WAYS),
    "InputOptions": set(WAYS),
    "TensorSpec": set(WAYS),
    "element_spec": set(WAYS),
    "Variable": {"deepcopy"},
    "DistributedDataset": {"copy"},
    "Controlled": set(WAYS),
    "Exported": set(WAYS),
}
"""The ways in which an object has equal copies; all others are refused."""

REFUSED: Final = (
    *("Strategy", "DistributedIterator", "Recording", "Run", "Background", "Extended"),
    *("Iterator", "Writer", "Checkpoint", "CheckpointManager", "Server", "Coordinator"),
    *("RemoteValue", "LoopControl"),
)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    tmp_path = tmp_path_factory.mktemp("copies")
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = dl.Variable(jnp.ones(2), name="weight")
    dataset = dl.data.Dataset.range(4).batch(2)
    distributed = strategy.experimental_distribute_dataset(dataset)
    with dl.record(tmp_path / "run") as recording:
        recording.log(0, loss=1.0)
    checkpoint = dl.train.Checkpoint(weight=variable)
    cluster = dl.ClusterSpec({"worker": ["copies-a:1"], "ps": ["copies-b:1"]})
    servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
    loop = iter(dl.controlled(range(3), name="copied"))
    next(loop)
    with dl.io.TFRecordWriter(tmp_path / "records") as writer, dl.Run.open(tmp_path / "run") as run:
        yield {
            "PerReplica": strategy.experimental_distribute_values_from_function(
                lambda context: jnp.ones(2) * context.replica_id_in_sync_group
            ),
            "Mirrored": strategy.replicate(jnp.ones(2)),
            "Dataset": dataset,
            "RunOptions": dl.RunOptions(run_eagerly=True),
            "InputOptions": dl.InputOptions(),
            "TensorSpec": dl.data.TensorSpec((2,), np.dtype("float32")),
            "element_spec": distributed.element_spec,
            "Variable": variable,
            "DistributedDataset": distributed,
            "Strategy": strategy,
            "DistributedIterator": iter(distributed),
            "Recording": recording,
            "Run": run,
            "Background": dl.background(int),
            "Extended": strategy.extended,
            "Controlled": dl.controlled([1, 2, 3]),
            "Exported": dl.export(lambda x: x * variable.value(), jnp.ones(2)),
            "Iterator": iter(dataset),
            "Writer": writer,
            "Checkpoint": checkpoint,
            "CheckpointManager": dl.train.CheckpointManager(checkpoint, tmp_path / "saved", 2),
            "Server": servers[0],
            "Coordinator": coordinator,
            "RemoteValue": coordinator.schedule(int),
            "LoopControl": next(control for control in loops() if control.name == "copied"),
        }
    list(loop)
    for server in servers:
        server.stop()


def numbers(thing: Any) -> object:
    """What an object holds, to compare copies by."""
    if isinstance(thing, dl.DistributedValues):
        return [np.asarray(value).tolist() for value in thing.values]
    if isinstance(thing, dl.Exported):
        return thing(jnp.array([2.0, 3.0])).tolist()
    if isinstance(thing, Controlled):
        return list(thing)
    if isinstance(thing, dl.data.Dataset):
        return [batch.tolist() for batch in thing]
    return repr(thing)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*EQUAL, *REFUSED])
def test_a_copy_is_equal_or_refused_in_words(name: str, way: str, objects: dict[str, Any]) -> None:
    thing = objects[name]
    if way in EQUAL.get(name, ()):
        made = WAYS[way](thing)
        assert type(made) is type(thing)
        assert numbers(made) == numbers(thing)
        return
    if (name, way) == ("Extended", "copy"):
        return  # it holds nothing but its strategy
    with pytest.raises(DistlabError) as raised:
        WAYS[way](thing)
    assert has_remedy(str(raised.value))


def test_an_assignment_to_a_copy_of_a_variable_leaves_the_variable(
    objects: dict[str, Any],
) -> None:
    made = copy.deepcopy(objects["Variable"])
    made.assign(jnp.zeros(2))
    assert objects["Variable"].numpy().tolist() == [1.0, 1.0]
